// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Object identifies an object of the API server. An empty field stands for any kind, namespace or name.
type Object struct {
	Kind      string // such as "ConfigMap", "Secret" or "PersistentVolumeClaim"
	Namespace string
	Name      string
}

// Kinds of an [Object], in addition to "ConfigMap" and "Secret".
const (
	KindPod   = "Pod"                   // labels and annotations of a pod
	KindClaim = "PersistentVolumeClaim" // its change retries pods that wait for the claim, and expands volumes
	KindPV    = "PersistentVolume"      // its change has the effect of that of KindClaim

	KindTrustBundle    = "ClusterTrustBundle"
	KindPodCertificate = "PodCertificate" // an issued certificate; namespace and name are those of its pod
)

// Watcher reports changes of API objects.
type Watcher interface {
	// Watch calls changed for each changed object until ctx ends. An empty argument stands for any kind, namespace or name. A
	// missed change delays the update of volumes by up to 90 s; a superfluous call is harmless. changed does not block.
	Watch(ctx context.Context, changed func(kind, namespace, name string)) error
}

// Refresher is an optional interface of a [Plugin] whose volumes show API objects, such as ConfigMaps, as files. When such an
// object changes, [Volumes] calls SetUp to update the volume. It does not do this for volumes with a claim.
type Refresher interface {
	// Shows reports whether volume vol of pod shows object. An Object of kind "Pod" is the pod's own metadata. It is called
	// with a lock held, must not block and has no side effects.
	Shows(pod *corev1.Pod, vol *corev1.Volume, object Object) bool
}

// ObjectWaiter is an optional interface of a [Plugin] whose SetUp or Stage may fail until an object exists. For example, a CSI
// driver may not be registered yet.
type ObjectWaiter interface {
	// WaitsFor reports whether the change of object may let failed steps of the plugin succeed. They are then retried at once.
	// It is called with a lock held, must not block and has no side effects.
	WaitsFor(object Object) bool
}

// JoinWatchers returns a Watcher that runs all given watchers. When one of them fails, the returned Watcher stops all of
// them and returns the error.
func JoinWatchers(watchers ...Watcher) Watcher { return joinedWatchers(watchers) }

// joinedWatchers is the Watcher that [JoinWatchers] returns.
type joinedWatchers []Watcher

// Watch runs all watchers until ctx ends or one of them fails. It returns the error of the failed watcher.
func (j joinedWatchers) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for _, w := range j {
		wg.Go(func() {
			err := w.Watch(ctx, changed)
			once.Do(func() { first = err })
			cancel()
		})
	}
	if len(j) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	wg.Wait()
	return first
}
