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
	ISCSI       = "kubernetes.io/iscsi"
	FC          = "kubernetes.io/fc"
	CSI         = "kubernetes.io/csi"
)

// Volume is one volume of one pod, as a plugin is asked to set it up or tear it down.
type Volume struct {
	Pod    *corev1.Pod    // not to be changed; nil at a teardown by an agent that has only the record
	Source *corev1.Volume // likewise

	UID    string // of the pod
	Name   string // in the pod
	Plugin string // by its name
	PodDir string // of the pod: Root/UID
	Dir    string // of the volume: PodDir/volumes/PLUGIN/NAME. It need not exist, and its parent exists at a set-up

	// Warn records an event about the pod. It is never nil.
	Warn func(reason, message string)
}

// Mount is a volume that is set up.
type Mount struct {
	HostPath       string // of the directory or file
	ReadOnly       bool   // also where the mounts of containers are not
	SELinuxRelabel bool   // the runtime is to give it the label of the container
}

// Plugin makes the volumes of one kind of source. Both methods return when ctx ends, with its error.
type Plugin interface {
	// SetUp makes a volume and returns what containers mount. It is idempotent: it is called again for a volume that is set
	// up, by an agent that was started again or to bring it up to date, and leaves alone what is right. After an error there may
	// be something left, which is torn down like any other, unless it wraps a [plan.Final].
	SetUp(ctx context.Context, v Volume) (Mount, error)
	// TearDown removes a volume, and nothing that somebody has mounted in it. One that is absent is success.
	TearDown(ctx context.Context, v Volume) error
}

// Checker is a [Plugin] that can refuse a volume from its specification.
type Checker interface {
	// Check returns an error for each field that asks for what cannot be had. It is pure and quick.
	Check(pod *corev1.Pod, v *corev1.Volume, path *field.Path) field.ErrorList
}

// Object is an object of the cluster, or several: an empty field stands for any.
type Object struct {
	Kind      string // "ConfigMap" or "Secret"
	Namespace string
	Name      string
}

// Refresher is a [Plugin] whose volumes are brought up to date while they are in use, by SetUp.
type Refresher interface {
	// Shows reports whether a volume shows an object. The object of kind "Pod" is the metadata of the pod itself. It is pure and
	// quick: a lock is held.
	Shows(pod *corev1.Pod, v *corev1.Volume, o Object) bool
}

// KindPod is the kind of the object that is the labels and annotations of a pod.
const KindPod = "Pod"

// Usage is how much of a file system a volume takes, and how much there is. What is not known is zero.
type Usage struct {
	UsedBytes, CapacityBytes, AvailableBytes uint64
	UsedInodes, Inodes, FreeInodes           uint64
}

// Usager is a [Plugin] that can say how much a volume takes.
type Usager interface {
	// Usage measures a volume. What is mounted in it does not count.
	Usage(ctx context.Context, v Volume) (Usage, error)
}

// Watcher notices that objects of the cluster have changed.
type Watcher interface {
	// Watch calls changed for each object that has changed, until ctx ends. An empty argument stands for any kind, namespace or
	// name. A notice too many costs little; a lost one delays an update by up to 90 s. The function does not wait.
	Watch(ctx context.Context, changed func(kind, namespace, name string)) error
}
