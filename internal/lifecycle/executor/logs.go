// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/rmtree"
)

// logs manages the log files of the containers of one pod and the links to them in /var/log/containers.
type logs struct {
	files    poddir.Logs
	reporter *Reporter
}

// createLink creates the link in /var/log/containers to the log of a started container. id is the container ID.
func (l *logs) createLink(container, id string, attempt uint32) {
	if err := l.files.CreateLink(container, id, attempt); err != nil {
		l.reporter.Warn("create link to log", "container", container, "error", err)
	}
}

// removeLinks removes the links in /var/log/containers to the logs of these containers. It logs errors.
func (l *logs) removeLinks(containers []cri.Container) {
	if err := l.files.RemoveLinks(containers); err != nil {
		l.reporter.Warn("remove link to log", "error", err)
	}
}

// nextAttempt returns the attempt number of the next container instance: one above its newest log file, or 0.
func (l *logs) nextAttempt(container string) uint32 {
	n, err := l.files.NextAttempt(container)
	if err != nil {
		l.reporter.Warn("list container logs", "container", container, "error", err)
	}
	return n
}

// removeLogs removes the log files of a container and the links to them.
func (l *logs) removeLogs(observed cri.Pod, container *cri.Container) error {
	if err := l.files.Remove(observed, container); err != nil {
		return err
	}
	l.removeLinks([]cri.Container{*container})
	return nil
}

// removeAll removes the log directory of the pod with the logs of all containers. It logs errors.
func (l *logs) removeAll() {
	dir := l.files.Directory()
	if dir == "" {
		return
	}
	if err := rmtree.Remove(dir); err != nil {
		l.reporter.Warn("remove pod logs", "error", err)
	}
}
