// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The names of plugins for the sources of volumes, as in the kubelet.
const (
	EmptyDir    = "kubernetes.io/empty-dir"
	HostPath    = "kubernetes.io/host-path"
	ConfigMap   = "kubernetes.io/configmap"
	Secret      = "kubernetes.io/secret"
	DownwardAPI = "kubernetes.io/downward-api"
	Projected   = "kubernetes.io/projected"
	NFS         = "kubernetes.io/nfs"
	GitRepo     = "kubernetes.io/git-repo"
	ISCSI       = "kubernetes.io/iscsi"
	FC          = "kubernetes.io/fc"
	CSI         = "kubernetes.io/csi"
	Local       = "kubernetes.io/local-volume"
)

// Plugin makes the volumes of one kind of source. Both methods return when ctx ends, with its error. One that does not return then
// is left alone: its volume is not set up again before it has returned.
type Plugin interface {
	// SetUp makes a volume and returns what containers mount. It is idempotent: it is called again for a volume that is set
	// up, by an agent that was started again or to bring it up to date, and leaves alone what is right. After an error there may
	// be something left, which is torn down like any other, unless it wraps a [FinalError].
	SetUp(ctx context.Context, v Volume) (Mount, error)
	// TearDown removes a volume, and nothing that somebody has mounted in it. One that is absent is success.
	TearDown(ctx context.Context, v Volume) error
}

// Volume is one volume of one pod, as a plugin is asked to set it up or tear it down. At a teardown, and when a device is
// unstaged, there may be nothing but the record: then Pod, Source, Claim and PV are nil.
type Volume struct {
	Pod    *corev1.Pod    // not to be changed
	Source *corev1.Volume // of the pod, likewise: of a claimed volume it has the claim
	// Claim and PV are what a volume with a claim is made of, not to be changed. Nil: it has none.
	Claim *corev1.PersistentVolumeClaim
	PV    *corev1.PersistentVolume

	UID    string // of the pod; empty when a device is unstaged
	Name   string // in the pod
	Spec   string // its name on disk: that of PV, and Name of a volume without a claim
	Plugin string // by its name
	PodDir string // of the pod: Root/UID
	// Dir is where the volume is: PodDir/volumes/PLUGIN/SPEC, and for a block volume the link PodDir/volumeDevices/PLUGIN/SPEC, which
	// is not for the plugin to make. It need not exist, and its parent exists at a set-up.
	Dir       string
	PluginDir string // for what pods share: Options.PluginDir

	ReadOnly     bool     // as the pod has it: of its claim, or of its source
	Block        bool     // the volume is a block device, for volumeDevices
	MountOptions []string // of PV, sorted, none twice
	// SELinuxLabel is the label that a [SELinuxMounter] mounts the volume with, for all pods that share it; empty: with none.
	SELinuxLabel string

	Device     Device // what it shares with the volumes of other pods; the zero value: nothing
	StagingDir string // of Device.Dir; empty: there is none
	// DevicePath is where an Attacher has attached the volume; empty: nobody has said.
	DevicePath string
	// Shared: another pod has a volume of the same Device that is, or may be, set up.
	Shared bool
	// Update: the volume is set up, and is brought up to date. Recovered: an earlier agent may have made it, or its device.
	Update, Recovered bool

	// Warn records an event about the pod. It is never nil.
	Warn func(reason, message string)
}

// Mount is a volume that is set up.
type Mount struct {
	// HostPath is that of the directory or file, and for a block volume that of the device.
	HostPath       string
	ReadOnly       bool // also where the mounts of containers are not
	SELinuxRelabel bool // the runtime is to give it the label of the container
	// Refresh has the volume brought up to date every Options.Refresh, though its plugin is no [Refresher].
	Refresh bool
}

// Checker is a [Plugin] that can refuse a volume from its specification.
type Checker interface {
	// Check returns an error for each field that asks for what cannot be had. It is pure and quick.
	Check(pod *corev1.Pod, v *corev1.Volume, path *field.Path) field.ErrorList
}
