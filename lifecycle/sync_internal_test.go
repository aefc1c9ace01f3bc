// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
)

// fixedObserver returns the pods of a runtime, or the fixed pod observed once it is set.
type fixedObserver struct {
	rt       *critest.Runtime
	observed *cri.Pod
}

// NewerThan returns the pod.
func (o *fixedObserver) NewerThan(ctx context.Context, uid string, _ time.Time) (cri.Pod, error) {
	if o.observed != nil {
		return *o.observed, nil
	}
	return o.rt.ListPod(ctx, uid)
}

// Relist does nothing.
func (o *fixedObserver) Relist(string) {}

// Pods returns no pod.
func (o *fixedObserver) Pods() ([]cri.Pod, error) { return nil, nil }

// emptyCgroups is a [PodCgroups] that does nothing.
type emptyCgroups struct{}

func (emptyCgroups) Exists(context.Context, *corev1.Pod) (bool, error) { return true, nil }
func (emptyCgroups) Ensure(context.Context, *corev1.Pod) error         { return nil }
func (emptyCgroups) Limit(context.Context, *corev1.Pod) error          { return nil }
func (emptyCgroups) Remove(context.Context, string) error              { return nil }

// Resize returns nil.
func (emptyCgroups) Resize(context.Context, *corev1.Pod, []cgroups.ContainerResize, cgroups.Resizer) error {
	return nil
}

// BenchmarkSync measures a sync of a running pod of 10 containers without changes.
func BenchmarkSync(b *testing.B) {
	rt := critest.New(critest.Options{})
	observer := &fixedObserver{rt: rt}
	o := Options{Cgroups: emptyCgroups{}, Dirs: Dirs{Pods: b.TempDir()}}
	o.Spec.CgroupParent = func(pod *corev1.Pod) string { return "/pod" + string(pod.UID) }
	r, err := New(rt, observer, o)
	require.NoError(b, err)
	pod := podtest.Pod("a", "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9")
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprint(200+i, "m")), "memory": resource.MustParse("128Mi")},
		}
	}
	ctx := b.Context()
	w := newWorker(r, cri.PodIdentity{UID: string(pod.UID), Name: pod.Name, Namespace: pod.Namespace}, pod)
	w.expectAdmission(pod)
	require.NoError(b, w.record.Load())
	for range 5 { // starts containers, and then publishes the status
		w.syncPod(ctx)
	}
	observed, err := rt.ListPod(ctx, w.id.UID)
	require.NoError(b, err)
	require.Len(b, observed.Containers, len(pod.Spec.Containers))
	observer.observed = &observed
	b.ReportAllocs()
	for b.Loop() {
		if next, gone := w.syncPod(ctx); gone || next == 0 {
			b.Fatal("the pod still has actions")
		}
	}
}
