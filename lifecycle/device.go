// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Devices gives containers the devices of the extended resources that they limit, such as example.com/gpu. If it implements
// [Notifier], it reports the pods whose devices have changed their health, and those that need not wait any longer. See also
// [DeviceFailures] and [StartPreparer].
//
// Calls of Reserve, Container and Release for one pod are sequential; calls for different pods are concurrent. Each call has two
// minutes, and must return when ctx ends; one that does not delays its pod. Source: Manager in pkg/kubelet/cm/devicemanager/types.go.
type Devices interface {
	// Reserve reserves all devices of a pod, or none. It is called after Admit, before volumes and sandbox are set up, and before
	// each later start of containers. If the devices are reserved already, it must return quickly. It is also called once for
	// a pod whose containers a previous agent process has started. It is not called for a pod that is deleted or has terminated.
	//
	// If Reserve returns a [*podstatus.Rejection], the pod fails with its reason, unless a container of it runs. After any other
	// error the pod waits, and Reserve is called again. The error is the message of the waiting containers, and of an event.
	Reserve(ctx context.Context, pod *corev1.Pod) error
	// Container adds the devices of a container to launch, from which the config of the container is built. It is called for all
	// containers, also for ephemeral ones, before each start and after Reserve. An error fails this start.
	Container(ctx context.Context, pod *corev1.Pod, container *corev1.Container, launch *podspec.Launch) error
	// Health returns the reserved devices of a container for the field allocatedResourcesStatus of its status, in an order that
	// does not vary. Nil: it has none. It is called for each computed status, also during other calls, and must not block.
	// The result must not be changed later.
	Health(uid, container string) []corev1.ResourceStatus
	// Release releases all devices of the pod with this UID. It is called when the pod has terminated and no container of it
	// runs, also for an orphaned pod. A pod without devices is no error. After an error Release is called again.
	Release(ctx context.Context, uid string) error
}

// DeviceFailures is an optional interface of [Devices], for containers that are restarted when a device of theirs fails.
type DeviceFailures interface {
	// FailedAt returns when a reserved device of a container failed, while it is unhealthy; zero: no device is, or the time is not
	// known. An instance of the container that started before is stopped, and started again unless its restart policy is Never.
	// FailedAt is called as often as Health, and must not block. A [Notifier] reports the pod after each change.
	FailedAt(uid, container string) time.Time
}

// StartPreparer is an optional interface of [Devices], for resources of a container that may change while the runtime creates it.
type StartPreparer interface {
	// PrepareStart is called for a created container with this ID before each call of StartContainer, within two minutes. Since the
	// call of Container, other pods may have reserved or released devices. An error fails this start.
	PrepareStart(ctx context.Context, pod *corev1.Pod, container *corev1.Container, id string) error
}

// rejectReservation fails a pod that Options.Devices has rejected. After a recent temporary eviction the pod does not fail, but
// is evicted again, as after a rejection by Options.Admit.
func (w *worker) rejectReservation(pod *corev1.Pod, rejection *podstatus.Rejection) {
	eviction := &podstatus.Eviction{Reason: rejection.StatusReason(), Message: rejection.Message, Temporary: true}
	history := w.record.Get().EvictionHistory
	if history.Count == 0 || time.Since(history.Until) > evictionBackOffReset || !eviction.IsTemporary(pod) {
		w.rejectPod(rejection)
		return
	}
	w.reporter.Log("temporarily evicted pod gets no devices", "reason", eviction.Reason, "message", eviction.Message)
	w.reporter.UpdateRecord(w.record, func(now *poddir.Record) {
		now.Eviction = eviction
		now.EvictionHistory = now.EvictionHistory.Next(time.Now(), evictionBackOff(), evictionBackOffReset)
		now.EvictionHistory.Reason = eviction.Reason
	})
}
