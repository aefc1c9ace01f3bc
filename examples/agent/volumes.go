// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
)

// wait is how long a pod waits for its volumes before its status says why. It goes on by itself when they are there.
const wait = 15 * time.Second

// mount gives pods volumes that need nothing but this node and the directory of objects, in which a change is seen at once.
func (a *agent) mount(o *lifecycle.Options) error {
	plugins, opts := intree.Options{}, volume.Options{Root: o.Dirs.Pods, Shared: a.SharedMounts, Wait: wait, Logger: a.log}
	if a.Objects != "" {
		dir := objects.NewDir(a.Objects)
		plugins.Objects, opts.Watcher = dir, dir
	}
	opts.Plugins = intree.Plugins(plugins)
	opts.Hooks.Event = func(pod *corev1.Pod, _, reason, message string) {
		a.log.Info("event", "namespace", pod.Namespace, "pod", pod.Name, "reason", reason, "message", message)
	}
	volumes, err := volume.New(opts)
	if err != nil {
		return err
	}
	o.Volumes = volumes
	a.parts = append(a.parts, volumes.Run)
	return nil
}
