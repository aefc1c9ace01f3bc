// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podset"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// RefusedError is the reason why [Reconciler.Set] did not accept a pod or a change of a pod. Each one can be found with errors.As
// in the error that Set returns.
type RefusedError struct {
	Pod    cri.PodIdentity
	Source string
	Err    error // the cause, such as a [*podapi.ImmutableError]
	// Rejection is the reason and message with which the pod fails, unless the runtime has a sandbox or container of it. Nil: the
	// pod does not fail. A pod whose change was refused continues unchanged.
	Rejection *podstatus.Rejection
}

// Error returns the text of the cause, which names the pod.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// The rejection reasons of refused pods. Invalid pods have [podstatus.ReasonUnexpectedAdmissionError]. Source:
// pkg/kubelet/sysctl, pkg/kubelet/lifecycle.
const (
	reasonSysctl   = "SysctlForbidden"
	reasonOS       = "PodOSNotSupported"
	reasonAppArmor = "AppArmor"
	reasonFeature  = "PodFeatureUnsupported"
)

// maxRejectionMessage limits the message of a rejection, in bytes.
const maxRejectionMessage = 1024

// podCheckError is the error of a pod that cannot be run. It includes the rejection for the pod's status.
type podCheckError struct {
	err       error
	rejection *podstatus.Rejection // nil: the pod has no valid name or UID, so no status can be reported
}

// Error returns the text of the cause.
func (e *podCheckError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *podCheckError) Unwrap() error { return e.err }

// newRejection returns the reason and message with which a refused pod fails, or nil if the pod has no valid name, namespace or
// UID.
func (r *Reconciler) newRejection(pod *corev1.Pod, errs field.ErrorList, invalid bool) *podstatus.Rejection {
	if slices.ContainsFunc(errs, func(e *field.Error) bool {
		return slices.Contains([]string{"metadata.uid", "metadata.name", "metadata.namespace"}, e.Field)
	}) {
		return nil
	}
	message := errs.ToAggregate().Error()
	switch sysctls := podapi.ForbiddenSysctls(pod, r.opts.AllowedUnsafeSysctls); {
	case len(sysctls) > 0:
		return &podstatus.Rejection{Reason: reasonSysctl, Message: "forbidden sysctl: " + sysctls[0].Detail}
	case pod.Spec.OS != nil && pod.Spec.OS.Name != corev1.Linux:
		return &podstatus.Rejection{Reason: reasonOS, Message: "Failed to admit pod as the OS field doesn't match node OS"}
	// Other errors only mean that the pod uses an unsupported feature.
	case invalid:
		return &podstatus.Rejection{Message: truncateMessage(message)}
	case r.opts.AppArmorError != nil && podapi.UsesAppArmor(pod):
		return &podstatus.Rejection{Reason: reasonAppArmor, Message: appArmorMessage(r.opts.AppArmorError)}
	}
	return &podstatus.Rejection{Reason: reasonFeature, Message: truncateMessage("Pod requires node features that are not available: " + message)}
}

// appArmorMessage returns the rejection message for a pod with an AppArmor profile that the host cannot enforce because of
// err. Source: pkg/kubelet/lifecycle/handlers.go.
func appArmorMessage(err error) string { return fmt.Sprintf("Cannot enforce AppArmor: %v", err) }

// truncateMessage cuts a message to maxRejectionMessage bytes, including "..." at its end.
func truncateMessage(message string) string {
	if len(message) <= maxRejectionMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxRejectionMessage-len("...")], "") + "..."
}

// rejectionFor returns the rejection with which a pod fails that a check of its spec has refused, or nil if it need not fail.
func rejectionFor(refusal podset.Refusal) *podstatus.Rejection {
	unfit, ok := errors.AsType[*podCheckError](refusal.Err)
	if !ok || refusal.Pod.DeletionTimestamp != nil || podstatus.IsTerminal(refusal.Pod.Status.Phase) {
		return nil
	}
	return unfit.rejection
}

// retainRefusedPods lets next keep the pointers of the unchanged refused pods in previous. It copies other refused pods, unless
// they are shared (PodSet.Shared).
func retainRefusedPods(previous, next *podset.Accepted, shared bool) {
	for i := range next.Refused {
		r := &next.Refused[i]
		j := slices.IndexFunc(previous.Refused, func(o podset.Refusal) bool { return o.Pod.UID == r.Pod.UID })
		switch {
		case j >= 0 && podapi.Equal(previous.Refused[j].Pod, r.Pod):
			r.Pod = previous.Refused[j].Pod
		case !shared:
			r.Pod = r.Pod.DeepCopy()
		}
	}
}

// reportRefusals calls Hooks.PodRefused for each newly refused pod of the source, and returns the errors. At most one call per
// source runs at a time. The caller does not hold Reconciler.mu.
func (r *Reconciler) reportRefusals(name string, state *sourceState, refusals []podset.Refusal) (errs []error) {
	reported := make(map[[sha256.Size]byte]bool, len(refusals))
	for _, refusal := range refusals {
		id := cri.PodIdentity{}
		if pod := refusal.Pod; pod != nil {
			id = cri.PodIdentity{UID: string(pod.UID), Name: pod.Name, Namespace: pod.Namespace}
			if podstatus.IsTerminal(pod.Status.Phase) && errors.As(refusal.Err, new(*podCheckError)) {
				continue // it has terminated, for example by its rejection
			}
		}
		key := sha256.Sum256([]byte(id.UID + "/" + id.Namespace + "/" + id.Name + " " + refusal.Err.Error()))
		// The previous call for this source has reported it.
		if known := state.reported[key] || reported[key]; known {
			reported[key] = true
			continue
		}
		reported[key] = true
		if refusal.Pod == nil {
			errs = append(errs, refusal.Err)
			continue
		}
		err := &RefusedError{Pod: id, Source: name, Err: refusal.Err, Rejection: rejectionFor(refusal)}
		if hook := r.opts.Hooks.PodRefused; hook != nil {
			hook(err)
		}
		errs = append(errs, err)
	}
	state.reported = reported
	return errs
}

// startRejections calls add for each refused pod that must be reported as failed. The caller holds Reconciler.mu.
func (r *Reconciler) startRejections(observed []cri.Pod, listComplete bool, add func(podset.RefusedPod, *podstatus.Rejection)) {
	for _, refused := range r.desiredPods().RefusedPods() {
		uid, rejection := string(refused.Pod.UID), rejectionFor(refused.Refusal)
		// A refused pod that exists continues to run.
		exists := slices.ContainsFunc(observed, func(p cri.Pod) bool { return p.UID == uid })
		if listComplete && !exists && rejection != nil && r.workers[uid] == nil {
			add(refused, rejection)
		}
	}
}
