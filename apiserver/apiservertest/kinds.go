// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"reflect"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Object is an API object that the server stores.
type Object interface {
	runtime.Object
	metav1.Object
}

// kind describes one API resource: its kind, Go type, and properties that the server models.
type kind struct {
	schema.GroupVersionKind
	resource   string
	namespaced bool
	versioned  bool // an update must have the resource version of the stored object
	typ        reflect.Type
}

func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.resource}
}

// newObject returns an empty object of the kind.
func (k *kind) newObject() Object { return reflect.New(k.typ).Interface().(Object) }

// hasStatus reports whether objects of this kind have a status subresource.
func (k *kind) hasStatus() bool {
	_, ok := k.typ.FieldByName("Status")
	return ok
}

// kinds holds the supported kinds, by resource and by Go type.
type kinds struct {
	codecs     serializer.CodecFactory
	scheme     *runtime.Scheme
	byResource map[schema.GroupVersionResource]*kind
	byType     map[reflect.Type]*kind
}

func newKinds() (*kinds, error) {
	k := &kinds{
		scheme:     runtime.NewScheme(),
		byResource: map[schema.GroupVersionResource]*kind{},
		byType:     map[reflect.Type]*kind{},
	}
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, certificatesv1.AddToScheme, certificatesv1beta1.AddToScheme,
		nodev1.AddToScheme, storagev1.AddToScheme, authenticationv1.AddToScheme,
	} {
		if err := add(k.scheme); err != nil {
			return nil, err
		}
	}
	metav1.AddToGroupVersion(k.scheme, schema.GroupVersion{Version: "v1"})
	k.codecs = serializer.NewCodecFactory(k.scheme)
	k.addAll()
	return k, nil
}

func (k *kinds) addAll() {
	const cluster, namespaced = false, true
	for resource, obj := range map[string]Object{
		"pods": &corev1.Pod{}, "events": &corev1.Event{}, "configmaps": &corev1.ConfigMap{}, "secrets": &corev1.Secret{},
		"services": &corev1.Service{}, "serviceaccounts": &corev1.ServiceAccount{}, "endpoints": &corev1.Endpoints{}, //nolint:staticcheck // It is one of the kinds of v1.
		"persistentvolumeclaims": &corev1.PersistentVolumeClaim{},
	} {
		k.addKind(corev1.SchemeGroupVersion, resource, obj, namespaced)
	}
	for resource, obj := range map[string]Object{
		"nodes": &corev1.Node{}, "namespaces": &corev1.Namespace{}, "persistentvolumes": &corev1.PersistentVolume{},
	} {
		k.addKind(corev1.SchemeGroupVersion, resource, obj, cluster)
	}
	k.addKind(coordinationv1.SchemeGroupVersion, "leases", &coordinationv1.Lease{}, namespaced).versioned = true
	k.addKind(certificatesv1.SchemeGroupVersion, "certificatesigningrequests", &certificatesv1.CertificateSigningRequest{}, cluster)
	k.addKind(certificatesv1.SchemeGroupVersion, "clustertrustbundles", &certificatesv1.ClusterTrustBundle{}, cluster)
	k.addKind(certificatesv1.SchemeGroupVersion, "podcertificaterequests", &certificatesv1.PodCertificateRequest{}, namespaced)
	k.addKind(certificatesv1beta1.SchemeGroupVersion, "clustertrustbundles", &certificatesv1beta1.ClusterTrustBundle{}, cluster)
	k.addKind(certificatesv1beta1.SchemeGroupVersion, "podcertificaterequests", &certificatesv1beta1.PodCertificateRequest{}, namespaced)
	k.addKind(nodev1.SchemeGroupVersion, "runtimeclasses", &nodev1.RuntimeClass{}, cluster)
	for resource, obj := range map[string]Object{
		"csidrivers": &storagev1.CSIDriver{}, "csinodes": &storagev1.CSINode{}, "storageclasses": &storagev1.StorageClass{},
		"volumeattachments": &storagev1.VolumeAttachment{},
	} {
		k.addKind(storagev1.SchemeGroupVersion, resource, obj, cluster)
	}
}

func (k *kinds) addKind(version schema.GroupVersion, resource string, obj Object, namespaced bool) *kind {
	typ := reflect.TypeOf(obj).Elem()
	added := &kind{GroupVersionKind: version.WithKind(typ.Name()), resource: resource, namespaced: namespaced, typ: typ}
	k.byResource[version.WithResource(resource)] = added
	k.byType[typ] = added
	return added
}

// kindOf returns the server's description of the object's kind, or nil if the server does not support the kind.
func (k *kinds) kindOf(obj Object) *kind {
	typ := reflect.TypeOf(obj)
	if typ == nil || typ.Kind() != reflect.Pointer {
		return nil
	}
	return k.byType[typ.Elem()]
}

// address identifies the objects of a request path.
type address struct {
	kind        *kind
	namespace   string // empty: all namespaces, or a kind without namespace
	name        string // empty: all objects
	subresource string
}

// parsePath returns the kind, namespace, name and subresource in the path of a request. ok is false if the server does not
// support the resource.
func (k *kinds) parsePath(path string) (parsed address, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var version schema.GroupVersion
	switch {
	case len(parts) > 2 && parts[0] == "api":
		version, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		version, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return parsed, false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		if k.byResource[version.WithResource(parts[2])] != nil || version.Group != "" {
			parsed.namespace, parts = parts[1], parts[2:]
		}
	}
	parsed.kind = k.byResource[version.WithResource(parts[0])]
	if parsed.kind == nil || len(parts) > 3 || parsed.namespace != "" && !parsed.kind.namespaced {
		return parsed, false
	}
	if len(parts) > 1 {
		parsed.name = parts[1]
	}
	if len(parts) > 2 {
		parsed.subresource = parts[2]
	}
	return parsed, true
}
