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
	// Root is the parent of the pod directories, such as /var/lib/kubelet/pods: an absolute path without symbolic links.
	// Required.
	Root string
	// PluginDir is the directory for data that pods share, such as mounted file systems of devices: an absolute path without
	// symbolic links. Empty means "plugins" beside Root, as in the kubelet.
	PluginDir string
	// AdoptUnrecorded takes over volumes below Root that have no record: a kubelet has set them up. They are recorded when Update or Prepare is called
	// for their pod. Before that, VolumesInUse is not known, and Release needs plugins that are a [DeviceFinder] for volumes of claims and CSI drivers.
	AdoptUnrecorded bool
	// MakeRootShared makes Root a shared mount when Run starts, unless Root is on a shared mount already. mountPropagation of
	// containers needs this. It requires root privileges, and the mount outlives the agent. The kubelet always does this.
	MakeRootShared bool
	// Plugins maps a plugin name, such as [EmptyDir], to the plugin. Pods with a volume of another plugin are refused. Nil: only
	// image volumes, which the container runtime mounts, are supported.
	Plugins map[string]Plugin
	// Claims reads PersistentVolumeClaims and PersistentVolumes. Nil: volumes with a claim are refused.
	Claims Claims
	// Attacher waits until a volume is attached, for each [Device] with Attachable set. Nil: Run does not wait.
	Attacher Attacher
	// NodeLabels returns the labels of the Node, to check the nodeAffinity of PVs. Nil: the nodeAffinity is ignored.
	NodeLabels func() map[string]string
	// SELinux is the state of SELinux on the node: see [ReadSELinux]. Zero value: disabled, and volumes are mounted without a
	// label.
	SELinux SELinux
	// Watcher reports changed API objects. Nil: only the periodic updates detect changes.
	Watcher Watcher

	Parallel    int           // maximum number of concurrent steps; zero means 16
	SlowAfter   time.Duration // a step that takes longer no longer counts in Parallel; zero means 10 s
	StepTimeout time.Duration // deadline of one step; zero means 2 min
	// AttachTimeout is the maximum time that a step waits for an attachment, in addition to StepTimeout. Zero means 10 min, as in
	// the kubelet.
	AttachTimeout time.Duration
	WaitTimeout   time.Duration // maximum time that Prepare and Release block; zero means 2m3s, as in the kubelet
	RefreshPeriod time.Duration // time between periodic updates, plus up to 50 % at random; zero means 1 min

	Rand   func() float64 // random numbers in [0,1); nil means rand.Float64 of math/rand/v2
	Logger *slog.Logger   // nil discards
	Hooks  Hooks
}

// Hooks are callbacks of [Volumes]; any may be nil. They are called from several goroutines, but not concurrently for the same
// volume. They must not block.
type Hooks struct {
	// Event records an event about a pod, with the reasons and messages of the kubelet.
	Event func(pod *corev1.Pod, eventType, reason, message string)
	// StepCompleted reports a completed step: plugin name, step, duration, and nil or an [*Error].
	StepCompleted func(plugin string, step Step, took time.Duration, err error)
	// Expanded reports that a volume was expanded on this node to size bytes. The agent must write size to the status of the
	// claim.
	Expanded func(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, size int64)
	// Error reports an error that concerns no single volume, such as a damaged record.
	Error func(err error)
}

// Reasons of events that [Volumes] and its plugins record, as in the kubelet.
const (
	// ReasonFailedMount means that a volume could not be set up.
	ReasonFailedMount = "FailedMount"
	// ReasonFailedMapVolume means that a block volume could not be set up.
	ReasonFailedMapVolume = "FailedMapVolume"
	// ReasonFileSystemResizeFailed and ReasonFileSystemResizeSuccessful report the expansion of a volume on the node.
	ReasonFileSystemResizeFailed     = "FileSystemResizeFailed"
	ReasonFileSystemResizeSuccessful = "FileSystemResizeSuccessful"
	// ReasonPermissionChange reports progress of a slow change of file ownership (fsGroup).
	ReasonPermissionChange = "VolumePermissionChangeInProgress"
)

// validate returns an error for the first invalid field. It replaces zero values of optional fields by the defaults.
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
		{&o.SlowAfter, 10 * time.Second, "SlowAfter"},
		{&o.StepTimeout, 2 * time.Minute, "StepTimeout"},
		{&o.AttachTimeout, 10 * time.Minute, "AttachTimeout"},
		{&o.WaitTimeout, 2*time.Minute + 3*time.Second, "WaitTimeout"},
		{&o.RefreshPeriod, time.Minute, "RefreshPeriod"},
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
