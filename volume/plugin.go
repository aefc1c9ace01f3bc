// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Names of plugins, which are those of the kubelet: the keys of [Options].Plugins.
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

// Plugin sets up and tears down the volumes of one type, such as emptyDir. Both methods must return the error of ctx soon after
// ctx ends. If a call does not return, [Volumes] does not call SetUp for the volume again until it has.
type Plugin interface {
	// SetUp sets up a volume and returns the path that containers mount. It must be idempotent: it is also called after a
	// restart of the agent, and to update the volume, and keeps all that is correct. After an error it is retried. When the
	// pod is released, TearDown follows, unless the error wraps a [FinalError].
	SetUp(ctx context.Context, vol Volume) (Mount, error)
	// TearDown removes a volume. It must not delete files of a file system that another program has mounted inside. An absent
	// volume is no error.
	TearDown(ctx context.Context, vol Volume) error
}

// Volume is the argument of a [Plugin] call: one volume of one pod or, for Unstage, only the [Device]. If only the record of the
// volume is available, as in a teardown after a restart of the agent, then Pod, Source, Claim and PV are nil.
type Volume struct {
	Pod    *corev1.Pod    // read-only for the plugin
	Source *corev1.Volume // entry in pod.spec.volumes, read-only for the plugin; it names the claim, if any
	// Claim and PV are the claim of the volume and the PV that it is bound to, read-only for the plugin. Nil: the volume has no
	// claim.
	Claim *corev1.PersistentVolumeClaim
	PV    *corev1.PersistentVolume

	UID      string // UID of the pod; empty for Unstage
	Name     string // name in pod.spec.volumes
	SpecName string // name on disk: the name of PV, or Name without a claim
	Plugin   string // name of the plugin, such as [EmptyDir]
	PodDir   string // directory of the pod: Options.Root/UID
	// Dir is the path of the volume: PodDir/volumes/PLUGIN/NAME. SetUp creates it; its parent exists. For a block volume it is
	// the path of a symbolic link that [Volumes] creates: PodDir/volumeDevices/PLUGIN/NAME.
	Dir       string
	PluginDir string // Options.PluginDir: parent directory for data that pods share

	ReadOnly     bool     // the field readOnly in Source
	Block        bool     // the volume is a block device, for volumeDevices
	MountOptions []string // mount options of PV: sorted, without duplicates
	// SELinuxLabel is the label with which a [SELinuxMounter] mounts the volume, for all pods that share it; empty: no label.
	SELinuxLabel string

	Device     Device // the device that pods share; zero value: none
	StagingDir string // absolute path of Device.Dir; empty: none
	// DevicePath is the device path that an [Attacher] returned; empty: unknown.
	DevicePath string
	// UsedByOtherPod is true if the same Device is, or may be, set up for another pod.
	UsedByOtherPod bool
	// Update is true if SetUp is called to update a volume that is set up. Recovered is true if a previous agent process may have
	// set up the volume or staged its device.
	Update, Recovered bool

	// Warn records a warning event about the pod. It is never nil.
	Warn func(reason, message string)
}

// Mount is the result of [Plugin] SetUp: how containers mount the volume.
type Mount struct {
	// HostPath is the path of the directory or file, or of the device of a block volume.
	HostPath       string
	ReadOnly       bool // all containers mount the volume read-only, whatever readOnly in their volumeMounts is
	SELinuxRelabel bool // the container runtime must relabel the files with the label of the container
	// UpdatePeriodically makes [Volumes] call SetUp every Options.RefreshPeriod, even if the plugin is no [Refresher].
	UpdatePeriodically bool
}

// Checker is an optional interface of a [Plugin] that rejects invalid volumes when the pod is admitted.
type Checker interface {
	// Check returns an error for each field of vol that the plugin does not support. path is the field path of its source. It
	// must not block and has no side effects.
	Check(pod *corev1.Pod, vol *corev1.Volume, path *field.Path) field.ErrorList
}
