// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/rmtree"
)

// logs are the logs of the containers of a pod, and the links to them.
type logs struct {
	files    poddir.Logs
	reporter *Reporter
}

// link creates the link to the log of a container that was started.
func (l *logs) link(container, id string, attempt uint32) {
	if err := l.files.Link(container, id, attempt); err != nil {
		l.reporter.Warn("link log", "container", container, "error", err)
	}
}

// unlink removes the links to the logs of containers.
func (l *logs) unlink(containers []cri.Container) {
	if err := l.files.Unlink(containers); err != nil {
		l.reporter.Warn("remove link to log", "error", err)
	}
}

// nextAttempt returns the attempt after the newest one of a container that there is a log of.
func (l *logs) nextAttempt(container string) uint32 {
	n, err := l.files.Attempts(container)
	if err != nil {
		l.reporter.Warn("logs of a container", "container", container, "error", err)
	}
	return n
}

// remove removes the logs of a container, and the links to them.
func (l *logs) remove(observed cri.Pod, c *cri.Container) error {
	if err := l.files.Remove(observed, c); err != nil {
		return err
	}
	l.unlink([]cri.Container{*c})
	return nil
}

// removeAll removes the log directory of the pod.
func (l *logs) removeAll() {
	dir := l.files.Directory()
	if dir == "" {
		return
	}
	if err := rmtree.Remove(dir); err != nil {
		l.reporter.Warn("remove pod logs", "error", err)
	}
}
