// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an API object.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind describes one API resource: its path, and functions that create empty objects and lists. The zero Kind is invalid.
type Kind[T Object] struct {
	gv         schema.GroupVersion
	name       string // such as Pod
	resource   string // such as pods
	namespaced bool
	secret     bool // errors never quote a response of this kind
	newObject  func() T
	newList    func() runtime.Object
}

// Name returns the name of the kind, such as "Pod".
func (k Kind[T]) Name() string { return k.name }

// Resource returns the name of the resource in URL paths, such as "pods".
func (k Kind[T]) Resource() string { return k.resource }

// The kinds that a node agent uses.
var (
	Pods = Kind[*corev1.Pod]{ //nolint:gochecknoglobals // only read
		corev1.SchemeGroupVersion, "Pod", "pods", true, false,
		func() *corev1.Pod { return &corev1.Pod{} }, func() runtime.Object { return &corev1.PodList{} },
	}
	Nodes = Kind[*corev1.Node]{ //nolint:gochecknoglobals // only read
		corev1.SchemeGroupVersion, "Node", "nodes", false, false,
		func() *corev1.Node { return &corev1.Node{} }, func() runtime.Object { return &corev1.NodeList{} },
	}
	Events = Kind[*corev1.Event]{ //nolint:gochecknoglobals // only read
		corev1.SchemeGroupVersion, "Event", "events", true, false,
		func() *corev1.Event { return &corev1.Event{} }, func() runtime.Object { return &corev1.EventList{} },
	}
	ConfigMaps = Kind[*corev1.ConfigMap]{ //nolint:gochecknoglobals // only read
		corev1.SchemeGroupVersion, "ConfigMap", "configmaps", true, true,
		func() *corev1.ConfigMap { return &corev1.ConfigMap{} }, func() runtime.Object { return &corev1.ConfigMapList{} },
	}
	Secrets = Kind[*corev1.Secret]{ //nolint:gochecknoglobals // only read
		corev1.SchemeGroupVersion, "Secret", "secrets", true, true,
		func() *corev1.Secret { return &corev1.Secret{} }, func() runtime.Object { return &corev1.SecretList{} },
	}
	Services = Kind[*corev1.Service]{ //nolint:gochecknoglobals // only read
		corev1.SchemeGroupVersion, "Service", "services", true, false,
		func() *corev1.Service { return &corev1.Service{} }, func() runtime.Object { return &corev1.ServiceList{} },
	}
	ServiceAccounts = Kind[*corev1.ServiceAccount]{ //nolint:gochecknoglobals // only read
		corev1.SchemeGroupVersion, "ServiceAccount", "serviceaccounts", true, false,
		func() *corev1.ServiceAccount { return &corev1.ServiceAccount{} }, func() runtime.Object { return &corev1.ServiceAccountList{} },
	}
	PersistentVolumes = Kind[*corev1.PersistentVolume]{ //nolint:gochecknoglobals // only read
		corev1.SchemeGroupVersion, "PersistentVolume", "persistentvolumes", false, false,
		func() *corev1.PersistentVolume { return &corev1.PersistentVolume{} }, func() runtime.Object { return &corev1.PersistentVolumeList{} },
	}
	PersistentVolumeClaims = Kind[*corev1.PersistentVolumeClaim]{ //nolint:gochecknoglobals // only read
		corev1.SchemeGroupVersion, "PersistentVolumeClaim", "persistentvolumeclaims", true, false,
		func() *corev1.PersistentVolumeClaim { return &corev1.PersistentVolumeClaim{} }, func() runtime.Object { return &corev1.PersistentVolumeClaimList{} },
	}
	Leases = Kind[*coordinationv1.Lease]{ //nolint:gochecknoglobals // only read
		coordinationv1.SchemeGroupVersion, "Lease", "leases", true, false,
		func() *coordinationv1.Lease { return &coordinationv1.Lease{} }, func() runtime.Object { return &coordinationv1.LeaseList{} },
	}
	CertificateSigningRequests = Kind[*certificatesv1.CertificateSigningRequest]{ //nolint:gochecknoglobals // only read
		certificatesv1.SchemeGroupVersion, "CertificateSigningRequest", "certificatesigningrequests", false, false,
		func() *certificatesv1.CertificateSigningRequest { return &certificatesv1.CertificateSigningRequest{} },
		func() runtime.Object { return &certificatesv1.CertificateSigningRequestList{} },
	}
	ClusterTrustBundles = Kind[*certificatesv1.ClusterTrustBundle]{ //nolint:gochecknoglobals // only read
		certificatesv1.SchemeGroupVersion, "ClusterTrustBundle", "clustertrustbundles", false, false,
		func() *certificatesv1.ClusterTrustBundle { return &certificatesv1.ClusterTrustBundle{} },
		func() runtime.Object { return &certificatesv1.ClusterTrustBundleList{} },
	}
	PodCertificateRequests = Kind[*certificatesv1.PodCertificateRequest]{ //nolint:gochecknoglobals // only read
		certificatesv1.SchemeGroupVersion, "PodCertificateRequest", "podcertificaterequests", true, false,
		func() *certificatesv1.PodCertificateRequest { return &certificatesv1.PodCertificateRequest{} },
		func() runtime.Object { return &certificatesv1.PodCertificateRequestList{} },
	}
	RuntimeClasses = Kind[*nodev1.RuntimeClass]{ //nolint:gochecknoglobals // only read
		nodev1.SchemeGroupVersion, "RuntimeClass", "runtimeclasses", false, false,
		func() *nodev1.RuntimeClass { return &nodev1.RuntimeClass{} }, func() runtime.Object { return &nodev1.RuntimeClassList{} },
	}
	CSIDrivers = Kind[*storagev1.CSIDriver]{ //nolint:gochecknoglobals // only read
		storagev1.SchemeGroupVersion, "CSIDriver", "csidrivers", false, false,
		func() *storagev1.CSIDriver { return &storagev1.CSIDriver{} }, func() runtime.Object { return &storagev1.CSIDriverList{} },
	}
	CSINodes = Kind[*storagev1.CSINode]{ //nolint:gochecknoglobals // only read
		storagev1.SchemeGroupVersion, "CSINode", "csinodes", false, false,
		func() *storagev1.CSINode { return &storagev1.CSINode{} }, func() runtime.Object { return &storagev1.CSINodeList{} },
	}
	VolumeAttachments = Kind[*storagev1.VolumeAttachment]{ //nolint:gochecknoglobals // only read
		storagev1.SchemeGroupVersion, "VolumeAttachment", "volumeattachments", false, false,
		func() *storagev1.VolumeAttachment { return &storagev1.VolumeAttachment{} }, func() runtime.Object { return &storagev1.VolumeAttachmentList{} },
	}
)

// newScheme returns a scheme with the API groups of all kinds, of token requests and of reviews.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	add := runtime.NewSchemeBuilder(
		corev1.AddToScheme, coordinationv1.AddToScheme, certificatesv1.AddToScheme, nodev1.AddToScheme, storagev1.AddToScheme, authenticationv1.AddToScheme,
		authorizationv1.AddToScheme,
	)
	return s, add.AddToScheme(s)
}
