// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Options configure [Volumes].
type Options struct {
	// Root is where the directories of the pods are, such as /var/lib/kubelet/pods. It has no symbolic links in it. Required.
	Root string
	// PluginDir is where plugins keep what pods share, such as file systems of devices. Empty means "plugins" beside Root, as the
	// kubelet has it. It has no symbolic links in it.
	PluginDir string
	// Shared makes Root a shared mount when Run begins, unless it is on one, as the kubelet does: mountPropagation needs that. It
	// takes root, and stays.
	Shared bool
	// Plugins are by the names in this package, such as [EmptyDir]. A volume whose plugin is not there is refused. Nil: none but images is there.
	Plugins map[string]Plugin
	// Claims are the claims of pods and the volumes they are bound to. Nil: volumes with a claim are refused.
	Claims Claims
	// Attacher waits for volumes of which the plugin says that they are attached to the node. Nil: there is nothing to attach.
	Attacher Attacher
	// Labels returns the labels of the node, which a PV may require. Nil: the nodeAffinity of PVs is not looked at.
	Labels func() map[string]string
	// SELinux is the state of SELinux on the node: see [ReadSELinux]. The zero value: it is not enabled, and no volume is mounted with a label.
	SELinux SELinux
	// Watcher notices changed objects. Nil: they are seen when volumes are brought up to date anyway.
	Watcher Watcher

	Parallel int           // how many steps are under way at a time; zero means 16
	Slow     time.Duration // a step that takes longer does not count there; zero means 10 s
	Timeout  time.Duration // of one step; zero means 2 min
	// AttachTimeout is how long a step waits for an attachment, before its own Timeout begins; zero means 10 min, the kubelet's.
	AttachTimeout time.Duration
	Wait          time.Duration // how long Prepare and Release wait; zero means 2m3s, the kubelet's
	Refresh       time.Duration // how often volumes are brought up to date, up to half of it later at random; zero means 1 min

	Rand   func() float64 // nil means that of math/rand/v2
	Logger *slog.Logger   // nil discards
	Hooks  Hooks
}

// Hooks are called when something happens. Any may be nil. They are called from the goroutines of Run, those about one volume one
// after the other, must not block and may be called at the same time.
type Hooks struct {
	// Event is an event about a pod, as the kubelet records it.
	Event func(pod *corev1.Pod, eventType, reason, message string)
	// Step is a step that has ended, with how long it took. The error is nil or an [*Error].
	Step func(plugin string, step Step, took time.Duration, err error)
	// Expanded is a volume that has grown on this node, to a number of bytes, which the status of the claim is to show.
	Expanded func(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, size int64)
	// Error is something that is wrong with no volume in particular, such as a record that cannot be read.
	Error func(err error)
}

// The reasons of events.
const (
	// ReasonFailedMount is the reason of the event of a volume that could not be set up.
	ReasonFailedMount = "FailedMount"
	// ReasonFailedMapVolume is that of a block volume.
	ReasonFailedMapVolume = "FailedMapVolume"
	// ReasonFileSystemResizeFailed and ReasonFileSystemResizeSuccessful are the reasons of events of volumes that have to grow.
	ReasonFileSystemResizeFailed     = "FileSystemResizeFailed"
	ReasonFileSystemResizeSuccessful = "FileSystemResizeSuccessful"
	// ReasonPermissionChange is the reason of the event of a change of permissions that takes long.
	ReasonPermissionChange = "VolumePermissionChangeInProgress"
)

// validate fills in what zero values mean.
func (o *Options) validate() error {
	if o.Root == "" {
		return errors.New("volume: field Root is empty: it is the parent of the directories of pods, such as /var/lib/kubelet/pods")
	}
	for name, path := range map[string]string{"Root": o.Root, "PluginDir": o.PluginDir} {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("volume: field %s: %q must be an absolute path", name, path)
		}
	}
	if o.PluginDir == "" {
		o.PluginDir = filepath.Join(filepath.Dir(o.Root), "plugins")
	}
	for name, p := range o.Plugins {
		if p == nil {
			return fmt.Errorf("volume: field Plugins: %s is nil", name)
		}
	}
	for _, d := range []*struct {
		value *time.Duration
		zero  time.Duration
		name  string
	}{
		{&o.Slow, 10 * time.Second, "Slow"},
		{&o.Timeout, 2 * time.Minute, "Timeout"},
		{&o.AttachTimeout, 10 * time.Minute, "AttachTimeout"},
		{&o.Wait, 2*time.Minute + 3*time.Second, "Wait"},
		{&o.Refresh, time.Minute, "Refresh"},
	} {
		switch {
		case *d.value < 0:
			return fmt.Errorf("volume: field %s: %v is negative", d.name, *d.value)
		case *d.value == 0:
			*d.value = d.zero
		}
	}
	switch {
	case o.Parallel < 0:
		return fmt.Errorf("volume: field Parallel: %d is negative", o.Parallel)
	case o.Parallel == 0:
		o.Parallel = 16
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
