// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// addTypes registers the Go types of all supported kinds, and of the bodies of subresources.
func addTypes(scheme *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, authenticationv1.AddToScheme, autoscalingv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme,
		certificatesv1.AddToScheme, certificatesv1beta1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme,
		eventsv1.AddToScheme, nodev1.AddToScheme, policyv1.AddToScheme, resourcev1.AddToScheme, schedulingv1.AddToScheme, storagev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	return nil
}

// builtin is a supported kind that has a Go type.
type builtin struct {
	version      schema.GroupVersion
	resource     string
	object       Object
	namespaced   bool
	shortName    string // empty: none
	traits       traits
	subresources []string // other than status
}

// builtinKinds returns all supported kinds that have a Go type. Source of their properties: the strategies and storages in
// pkg/registry.
func builtinKinds() []builtin {
	const cluster, namespaced = false, true
	counted, deleted := traits{generation: true}, traits{returnsDeleted: true}
	countedDeleted, versionedDeleted := traits{generation: true, returnsDeleted: true}, traits{versioned: true, returnsDeleted: true}
	core, apps, resource := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, resourcev1.SchemeGroupVersion
	storage, certificates, beta := storagev1.SchemeGroupVersion, certificatesv1.SchemeGroupVersion, certificatesv1beta1.SchemeGroupVersion
	scale := []string{"scale"}
	return []builtin{
		{core, "pods", &corev1.Pod{}, namespaced, "po", countedDeleted, []string{"binding", "ephemeralcontainers", "eviction", "resize"}},
		{core, "nodes", &corev1.Node{}, cluster, "no", traits{}, nil},
		{core, "namespaces", &corev1.Namespace{}, cluster, "ns", deleted, []string{"finalize"}},
		{core, "events", &corev1.Event{}, namespaced, "ev", traits{}, nil},
		{core, "configmaps", &corev1.ConfigMap{}, namespaced, "cm", traits{}, nil},
		{core, "secrets", &corev1.Secret{}, namespaced, "", traits{}, nil},
		{core, "services", &corev1.Service{}, namespaced, "svc", deleted, nil},
		{core, "serviceaccounts", &corev1.ServiceAccount{}, namespaced, "sa", deleted, []string{"token"}},
		{core, "endpoints", &corev1.Endpoints{}, namespaced, "ep", traits{}, nil}, //nolint:staticcheck // It is one of the kinds of v1.
		{core, "persistentvolumes", &corev1.PersistentVolume{}, cluster, "pv", deleted, nil},
		{core, "persistentvolumeclaims", &corev1.PersistentVolumeClaim{}, namespaced, "pvc", deleted, nil},
		{core, "replicationcontrollers", &corev1.ReplicationController{}, namespaced, "rc", counted, scale},
		{core, "podtemplates", &corev1.PodTemplate{}, namespaced, "", countedDeleted, nil},
		{core, "limitranges", &corev1.LimitRange{}, namespaced, "limits", traits{}, nil},
		{core, "resourcequotas", &corev1.ResourceQuota{}, namespaced, "quota", deleted, nil},
		{apps, "deployments", &appsv1.Deployment{}, namespaced, "deploy", counted, scale},
		{apps, "replicasets", &appsv1.ReplicaSet{}, namespaced, "rs", counted, scale},
		{apps, "statefulsets", &appsv1.StatefulSet{}, namespaced, "sts", counted, scale},
		{apps, "daemonsets", &appsv1.DaemonSet{}, namespaced, "ds", counted, nil},
		{apps, "controllerrevisions", &appsv1.ControllerRevision{}, namespaced, "", traits{}, nil},
		{batchv1.SchemeGroupVersion, "jobs", &batchv1.Job{}, namespaced, "", counted, nil},
		{batchv1.SchemeGroupVersion, "cronjobs", &batchv1.CronJob{}, namespaced, "cj", counted, nil},
		{autoscalingv2.SchemeGroupVersion, "horizontalpodautoscalers", &autoscalingv2.HorizontalPodAutoscaler{}, namespaced, "hpa", counted, nil},
		{policyv1.SchemeGroupVersion, "poddisruptionbudgets", &policyv1.PodDisruptionBudget{}, namespaced, "pdb", traits{versioned: true, generation: true}, nil},
		{schedulingv1.SchemeGroupVersion, "priorityclasses", &schedulingv1.PriorityClass{}, cluster, "pc", counted, nil},
		{coordinationv1.SchemeGroupVersion, "leases", &coordinationv1.Lease{}, namespaced, "", traits{versioned: true}, nil},
		{discoveryv1.SchemeGroupVersion, "endpointslices", &discoveryv1.EndpointSlice{}, namespaced, "", counted, nil},
		{eventsv1.SchemeGroupVersion, "events", &eventsv1.Event{}, namespaced, "ev", traits{}, nil},
		{nodev1.SchemeGroupVersion, "runtimeclasses", &nodev1.RuntimeClass{}, cluster, "", traits{}, nil},
		{resource, "resourceclaims", &resourcev1.ResourceClaim{}, namespaced, "", deleted, nil},
		{resource, "resourceclaimtemplates", &resourcev1.ResourceClaimTemplate{}, namespaced, "", deleted, nil},
		{resource, "resourceslices", &resourcev1.ResourceSlice{}, cluster, "", countedDeleted, nil},
		{resource, "deviceclasses", &resourcev1.DeviceClass{}, cluster, "", countedDeleted, nil},
		{resource, "devicetaintrules", &resourcev1.DeviceTaintRule{}, cluster, "", countedDeleted, nil},
		{storage, "storageclasses", &storagev1.StorageClass{}, cluster, "sc", deleted, nil},
		{storage, "csinodes", &storagev1.CSINode{}, cluster, "", versionedDeleted, nil},
		{storage, "csidrivers", &storagev1.CSIDriver{}, cluster, "", versionedDeleted, nil},
		{storage, "csistoragecapacities", &storagev1.CSIStorageCapacity{}, namespaced, "", traits{versioned: true}, nil},
		{storage, "volumeattachments", &storagev1.VolumeAttachment{}, cluster, "", versionedDeleted, nil},
		{storage, "volumeattributesclasses", &storagev1.VolumeAttributesClass{}, cluster, "vac", deleted, nil},
		{certificates, "certificatesigningrequests", &certificatesv1.CertificateSigningRequest{}, cluster, "csr", traits{}, []string{"approval"}},
		{certificates, "clustertrustbundles", &certificatesv1.ClusterTrustBundle{}, cluster, "", traits{}, nil},
		{certificates, "podcertificaterequests", &certificatesv1.PodCertificateRequest{}, namespaced, "", traits{}, nil},
		{beta, "clustertrustbundles", &certificatesv1beta1.ClusterTrustBundle{}, cluster, "", traits{}, nil},
		{beta, "podcertificaterequests", &certificatesv1beta1.PodCertificateRequest{}, namespaced, "", traits{}, nil},
	}
}
