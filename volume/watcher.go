// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Object is an object of the cluster, or several: an empty field stands for any.
type Object struct {
	Kind      string // such as "ConfigMap", "Secret" or "PersistentVolumeClaim"
	Namespace string
	Name      string
}

// Kinds of an [Object], beside "ConfigMap" and "Secret".
const (
	KindPod   = "Pod"                   // the labels and annotations of a pod
	KindClaim = "PersistentVolumeClaim" // its change retries pods that wait for it, and expands volumes
	KindPV    = "PersistentVolume"      // as KindClaim

	KindTrustBundle    = "ClusterTrustBundle"
	KindPodCertificate = "PodCertificate" // an issued certificate, by namespace and name of its pod
)

// Watcher notices that objects of the cluster have changed.
type Watcher interface {
	// Watch calls changed for each object that has changed, until ctx ends. An empty argument stands for any kind, namespace or
	// name. A notice too many costs little; a lost one delays an update by up to 90 s. The function does not wait.
	Watch(ctx context.Context, changed func(kind, namespace, name string)) error
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

// JoinWatchers returns a Watcher that notices what any of several does. When one of them fails all end, and are called again as
// one would be.
func JoinWatchers(watchers ...Watcher) Watcher { return joinedWatchers(watchers) }

// joinedWatchers are several watchers that are one.
type joinedWatchers []Watcher

// Watch runs all of them.
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
