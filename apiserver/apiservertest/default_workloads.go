// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// setDefault sets an unset field to a default.
func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// setWorkloadDefaults sets defaults in the fields that controllers and schedulers read without a check for nil. Source: defaults.go
// of the groups in pkg/apis.
func setWorkloadDefaults(obj Object) {
	// pod templates get no defaults: a pod gets its own when it is created
	quarter := intstr.FromString("25%")
	switch obj := obj.(type) {
	case *corev1.ReplicationController:
		setDefault(&obj.Spec.Replicas, 1)
	case *appsv1.Deployment:
		setDefault(&obj.Spec.Replicas, 1)
		setDefault(&obj.Spec.RevisionHistoryLimit, 10)
		setDefault(&obj.Spec.ProgressDeadlineSeconds, 600)
		strategy := &obj.Spec.Strategy
		if strategy.Type = cmp.Or(strategy.Type, appsv1.RollingUpdateDeploymentStrategyType); strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
			setDefault(&strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
			setDefault(&strategy.RollingUpdate.MaxUnavailable, quarter)
			setDefault(&strategy.RollingUpdate.MaxSurge, quarter)
		}
	case *appsv1.ReplicaSet:
		setDefault(&obj.Spec.Replicas, 1)
	case *appsv1.StatefulSet:
		setStatefulSetDefaults(&obj.Spec)
	case *appsv1.DaemonSet:
		setDefault(&obj.Spec.RevisionHistoryLimit, 10)
		strategy := &obj.Spec.UpdateStrategy
		if strategy.Type = cmp.Or(strategy.Type, appsv1.RollingUpdateDaemonSetStrategyType); strategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
			setDefault(&strategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
			setDefault(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
			setDefault(&strategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
		}
	case *batchv1.Job:
		setJobDefaults(&obj.Spec)
	case *batchv1.CronJob:
		obj.Spec.ConcurrencyPolicy = cmp.Or(obj.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
		setDefault(&obj.Spec.Suspend, false)
		setDefault(&obj.Spec.SuccessfulJobsHistoryLimit, 3)
		setDefault(&obj.Spec.FailedJobsHistoryLimit, 1)
	case *autoscalingv2.HorizontalPodAutoscaler:
		setDefault(&obj.Spec.MinReplicas, 1)
	case *schedulingv1.PriorityClass:
		setDefault(&obj.PreemptionPolicy, corev1.PreemptLowerPriority)
	case *storagev1.StorageClass:
		setDefault(&obj.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
		setDefault(&obj.VolumeBindingMode, storagev1.VolumeBindingImmediate)
	case *discoveryv1.EndpointSlice:
		for i := range obj.Ports {
			setDefault(&obj.Ports[i].Name, "")
			setDefault(&obj.Ports[i].Protocol, corev1.ProtocolTCP)
		}
	}
}

func setStatefulSetDefaults(spec *appsv1.StatefulSetSpec) {
	setDefault(&spec.Replicas, 1)
	setDefault(&spec.RevisionHistoryLimit, 10)
	spec.PodManagementPolicy = cmp.Or(spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	spec.UpdateStrategy.Type = cmp.Or(spec.UpdateStrategy.Type, appsv1.RollingUpdateStatefulSetStrategyType)
	if spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		setDefault(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
		setDefault(&spec.UpdateStrategy.RollingUpdate.Partition, 0)
	}
	setDefault(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	policy := spec.PersistentVolumeClaimRetentionPolicy
	policy.WhenDeleted = cmp.Or(policy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	policy.WhenScaled = cmp.Or(policy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
}

func setJobDefaults(spec *batchv1.JobSpec) {
	if spec.Completions == nil && spec.Parallelism == nil {
		setDefault(&spec.Completions, 1)
	}
	setDefault(&spec.Parallelism, 1)
	setDefault(&spec.BackoffLimit, 6)
	setDefault(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	setDefault(&spec.Suspend, false)
	setDefault(&spec.ManualSelector, false)
	replacement := batchv1.TerminatingOrFailed
	if spec.PodFailurePolicy != nil {
		replacement = batchv1.Failed
	}
	setDefault(&spec.PodReplacementPolicy, replacement)
}
