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

// Device is what volumes of several pods share: it is staged before the first of them is set up, and unstaged after the last is
// torn down. All of it is recorded, before it is staged.
type Device struct {
	// Name is that of the volume for its plugin, the same on the whole node, of at most 1,024 bytes. The kubelet's unique volume name
	// is PLUGIN/NAME. Empty: the volume is not staged.
	Name string `json:"name"`
	// Dir is where it is staged, below PluginDir; empty: nowhere. The directories that lead there exist when it is staged.
	Dir string `json:"dir,omitempty"`
	// MapDir is where a block device is bound for each pod by its UID, below PluginDir.
	MapDir string `json:"mapDir,omitempty"`
	// Data is what the plugin needs to unstage it beside that, of at most 16 KiB. It is no place for secrets.
	Data map[string]string `json:"data,omitempty"`
	// Attachable: it has to be attached to the node before it is staged, which is for [Attacher].
	Attachable bool `json:"attachable,omitempty"`
}

// Stager is a [Plugin] with volumes that are staged: made ready once on the node, for all pods that share them. A volume with a
// claim whose plugin is none is set up for each pod alone. Its methods are called for one device one at a time, and not while
// a volume of it is set up or torn down.
type Stager interface {
	// Device returns what a volume shares. It depends on nothing but PV, Block and the names in v, which has no Device yet. It may ask
	// somebody about the driver of the volume, and returns when ctx ends.
	Device(ctx context.Context, v Volume) (Device, error)
	// Stage makes a device ready, for one of the volumes that share it. It is idempotent. An error is one as of SetUp.
	Stage(ctx context.Context, v Volume) error
	// Unstage undoes Stage, by what is in the record. What was never staged is success. Nobody uses the device.
	Unstage(ctx context.Context, v Volume) error
}

// Expansion is how much a volume is to grow, in bytes.
type Expansion struct {
	Old, New int64 // of the claim, and of the volume
}

// Expander is a [Stager] whose volumes have to grow on the node, too, when their PV has grown.
type Expander interface {
	// NodeExpand lets a volume that is set up grow, once for all pods that share it, while containers use it or before any does. One
	// that has the size already is success.
	NodeExpand(ctx context.Context, v Volume, e Expansion) error
}

// Attacher knows what is attached to the node. Without one nothing has to be attached.
type Attacher interface {
	// WaitForAttach returns when a volume is attached, and the path of its device if that is known. It is called before each Stage
	// of an attachable device, and returns when ctx ends, after Options.AttachTimeout.
	WaitForAttach(ctx context.Context, v Volume) (devicePath string, err error)
}

// SELinuxMounter is a [Plugin] that can mount volumes with an SELinux label, which all of their files then have: by the mount option context="LABEL",
// with the quotes, where LABEL is Volume.SELinuxLabel. Such a volume is not relabeled.
type SELinuxMounter interface {
	// MountsWithLabel reports whether it can do so with a volume that has a PV. It may ask somebody about the driver of the volume, and
	// returns when ctx ends.
	MountsWithLabel(ctx context.Context, v Volume) (bool, error)
}

// Claims is where claims and the volumes they are bound to are. An object that does not exist is an error that wraps
// fs.ErrNotExist; any other error is that it cannot be known. What is returned is not changed. Package objects has some.
type Claims interface {
	// PersistentVolumeClaim returns a claim.
	PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	// PersistentVolume returns a volume.
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
}

// Checker is a [Plugin] that can refuse a volume from its specification.
type Checker interface {
	// Check returns an error for each field that asks for what cannot be had. It is pure and quick.
	Check(pod *corev1.Pod, v *corev1.Volume, path *field.Path) field.ErrorList
}

// Object is an object of the cluster, or several: an empty field stands for any.
type Object struct {
	Kind      string // such as "ConfigMap", "Secret" or "PersistentVolumeClaim"
	Namespace string
	Name      string
}

// Refresher is a [Plugin] whose volumes without a claim are brought up to date while they are in use, by SetUp.
type Refresher interface {
	// Shows reports whether a volume shows an object. The object of kind "Pod" is the metadata of the pod itself. It is pure and
	// quick: a lock is held.
	Shows(pod *corev1.Pod, v *corev1.Volume, o Object) bool
}

// Waiter is a [Plugin] whose volumes may wait for somebody else, such as a driver that is not there.
type Waiter interface {
	// WaitsFor reports whether what has failed with volumes of the plugin may succeed now that an object has changed. It is pure and
	// quick: a lock is held.
	WaitsFor(o Object) bool
}

// Kinds of an [Object], beside "ConfigMap" and "Secret".
const (
	KindPod   = "Pod"                   // the labels and annotations of a pod
	KindClaim = "PersistentVolumeClaim" // its change retries pods that wait for it, and expands volumes
	KindPV    = "PersistentVolume"      // as KindClaim

	KindTrustBundle    = "ClusterTrustBundle"
	KindPodCertificate = "PodCertificate" // an issued certificate, by namespace and name of its pod
)

// Usage is how much of a file system a volume takes, and how much there is. What is not known is zero.
type Usage struct {
	UsedBytes, CapacityBytes, AvailableBytes uint64
	UsedInodes, Inodes, FreeInodes           uint64
	// Abnormal is what is wrong with the volume, as its driver says; empty: nothing is known.
	Abnormal string
}

// Usager is a [Plugin] that can say how much a volume takes.
type Usager interface {
	// Usage measures a volume. What is mounted in it does not count. The error is [errors.ErrUnsupported] where that
	// cannot be known; Abnormal may be set even then.
	Usage(ctx context.Context, v Volume) (Usage, error)
}

// Watcher notices that objects of the cluster have changed.
type Watcher interface {
	// Watch calls changed for each object that has changed, until ctx ends. An empty argument stands for any kind, namespace or
	// name. A notice too many costs little; a lost one delays an update by up to 90 s. The function does not wait.
	Watch(ctx context.Context, changed func(kind, namespace, name string)) error
}
