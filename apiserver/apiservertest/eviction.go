// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxDisruptedPods is the number of evictions that the disruption controller has not confirmed above which a budget permits no more.
const maxDisruptedPods = 2000

// createEviction handles a POST request to the eviction subresource: it deletes the pod if its PodDisruptionBudget permits this.
// Source: pkg/registry/core/pod/storage/eviction.go.
func (c *call) createEviction() (runtime.Object, error) {
	decoded, err := c.decodeBody(&policyv1.Eviction{})
	if err != nil {
		return nil, err
	}
	eviction, ok := decoded.(*policyv1.Eviction)
	switch {
	case !ok:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Eviction object: %T", decoded))
	case eviction.Name != c.name:
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	case eviction.DeleteOptions == nil:
		eviction.DeleteOptions = &metav1.DeleteOptions{}
	}
	c.dryRun = c.dryRun || len(eviction.DeleteOptions.DryRun) > 0
	s := c.server.store
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, err := s.getLocked(c.objectKey())
	if err != nil {
		return nil, err
	}
	if err := c.checkPreconditions(eviction.DeleteOptions.Preconditions, obj); err != nil {
		return nil, err
	}
	if err := c.callAdmit(obj, nil); err != nil {
		return nil, err
	}
	if err := c.useBudgetLocked(obj.(*corev1.Pod)); err != nil {
		return nil, err
	}
	if !c.dryRun {
		evicted := evictedPod(obj.(*corev1.Pod))
		s.putLocked(c.objectKey(), obj, evicted)
		s.putLocked(c.objectKey(), evicted, afterDeletion(evicted, eviction.DeleteOptions.GracePeriodSeconds, time.Now()))
	}
	return &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}, nil
}

// evictedPod returns a copy of the pod with the condition DisruptionTarget.
func evictedPod(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(old corev1.PodCondition) bool { return old.Type == corev1.DisruptionTarget })
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
		LastTransitionTime: currentTime(),
	})
	return pod
}

// useBudgetLocked takes one disruption from the PodDisruptionBudget of the pod, if it has one. The caller holds the lock of the
// store.
func (c *call) useBudgetLocked(pod *corev1.Pod) error {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return nil
	}
	if pod.DeletionTimestamp != nil {
		return nil
	}
	budgets := c.server.store.listLocked(c.server.kinds.kindOf(&policyv1.PodDisruptionBudget{}), func(obj Object) bool {
		selector, err := metav1.LabelSelectorAsSelector(obj.(*policyv1.PodDisruptionBudget).Spec.Selector)
		return err == nil && obj.GetNamespace() == pod.Namespace && selector.Matches(labels.Set(pod.Labels))
	})
	switch len(budgets) {
	case 0:
		return nil
	case 1:
	default:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	}
	budget := budgets[0].(*policyv1.PodDisruptionBudget)
	if !isReady(pod) && permitsUnhealthy(budget) {
		return nil
	}
	next, err := decrementBudget(budget, pod.Name)
	if err != nil || c.dryRun {
		return err
	}
	k, err := c.server.store.keyOf(budget)
	if err == nil {
		c.server.store.putLocked(k, budget, next)
	}
	return err
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// permitsUnhealthy reports whether the budget permits the eviction of pods that are not ready. Such an eviction does not
// count as a disruption.
func permitsUnhealthy(budget *policyv1.PodDisruptionBudget) bool {
	if policy := budget.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return true
	}
	return budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy && budget.Status.DesiredHealthy > 0
}

// decrementBudget returns a copy of the budget that permits one disruption less and lists the pod as disrupted. Source:
// checkAndDecrement.
func decrementBudget(budget *policyv1.PodDisruptionBudget, pod string) (Object, error) {
	status := budget.Status
	switch {
	case status.ObservedGeneration < budget.Generation:
		return nil, budgetError(budget, 10, "is still being processed by the server.")
	case status.DisruptionsAllowed < 0:
		return nil, forbiddenByBudget(budget, "pdb disruptions allowed is negative")
	case len(status.DisruptedPods) > maxDisruptedPods:
		return nil, forbiddenByBudget(budget, "DisruptedPods map too big - too many evictions not confirmed by PDB controller")
	case status.DisruptionsAllowed == 0:
		return nil, budgetError(budget, 0, exhaustedText(budget))
	}
	next := budget.DeepCopy()
	next.Status.DisruptionsAllowed--
	if next.Status.DisruptionsAllowed == 0 {
		apimeta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason,
			ObservedGeneration: status.ObservedGeneration,
		})
	}
	if next.Status.DisruptedPods == nil {
		next.Status.DisruptedPods = map[string]metav1.Time{}
	}
	next.Status.DisruptedPods[pod] = currentTime()
	return next, nil
}

// exhaustedText returns the reason why the budget permits no disruption now, as a part of the error message.
func exhaustedText(budget *policyv1.PodDisruptionBudget) string {
	condition := apimeta.FindStatusCondition(budget.Status.Conditions, policyv1.DisruptionAllowedCondition)
	forbidden := condition != nil && condition.Status == metav1.ConditionFalse && condition.Message != ""
	switch {
	case forbidden && condition.Reason == policyv1.SyncFailedReason:
		return "does not allow evicting pods currently because it failed sync: " + condition.Message
	case budget.Status.CurrentHealthy <= budget.Status.DesiredHealthy:
		return fmt.Sprintf("needs %d healthy pods and has %d currently", budget.Status.DesiredHealthy, budget.Status.CurrentHealthy)
	case forbidden:
		return fmt.Sprintf("does not allow evicting pods currently (%s): %s", condition.Reason, condition.Message)
	default:
		return "does not allow evicting pods currently"
	}
}

// budgetError returns the error 429 of an eviction that the budget forbids, with the reason. The client may retry after
// delay seconds.
func budgetError(budget *policyv1.PodDisruptionBudget, delay int, reason string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", delay)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf("The disruption budget %s %s", budget.Name, reason),
	})
	return err
}

func forbiddenByBudget(budget *policyv1.PodDisruptionBudget, reason string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudget"}, budget.Name, errors.New(reason))
}
