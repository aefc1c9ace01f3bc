// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// Object is an API object that the server stores.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind describes a kind that a server serves in addition to its own kinds, such as that of a custom resource. The server stores its
// objects as *unstructured.Unstructured, and treats them as a real API server treats custom resources without a schema.
type Kind struct {
	Group, Version, Kind string // such as example.com, v1 and Widget
	Resource             string // plural name in paths, such as widgets
	Namespaced           bool   // false: the objects have no namespace
	Status               bool   // the objects have the subresource status
}

// kind describes one API resource: its kind, Go type, and properties that the server models.
type kind struct {
	schema.GroupVersionKind
	traits
	resource     string
	shortName    string // empty: none
	namespaced   bool
	subresources []string     // other than status
	typ          reflect.Type // nil: *unstructured.Unstructured
	alias        *alias       // nil: objects are stored as objects of this kind
}

// traits are properties of a kind in which kinds of a real API server differ.
type traits struct {
	versioned      bool // an update must have the resource version of the stored object
	generation     bool // the server counts the changes of the spec in metadata.generation
	returnsDeleted bool // the response to a DELETE request is the removed object, not a Status
	hasStatus      bool // objects have the subresource status
}

// alias describes a second API of a stored kind: events of events.k8s.io are stored as events of core.
type alias struct {
	stored     *kind
	toStored   func(Object) Object
	fromStored func(Object) Object
}

func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.resource}
}

// newObject returns an empty object of the kind.
func (k *kind) newObject() Object {
	if k.typ == nil {
		obj := &unstructured.Unstructured{Object: map[string]any{}}
		obj.SetGroupVersionKind(k.GroupVersionKind)
		return obj
	}
	return reflect.New(k.typ).Interface().(Object)
}

// storedKind returns the kind in which the server stores objects of kind k. This is k itself, unless k is an alias for
// another kind.
func (k *kind) storedKind() *kind {
	if k.alias != nil {
		return k.alias.stored
	}
	return k
}

// toStored converts an object of kind k to its stored kind.
func (k *kind) toStored(obj Object) Object {
	if k.alias != nil {
		return k.alias.toStored(obj)
	}
	return obj
}

// fromStored converts an object of the stored kind to kind k. It returns an object of another type unchanged.
func (k *kind) fromStored(obj Object) Object {
	if k.alias != nil && reflect.TypeOf(obj).Elem() == k.alias.stored.typ {
		return k.alias.fromStored(obj)
	}
	return obj
}

// kinds holds the supported kinds, by resource, by Go type and by name. It does not change after newKinds.
type kinds struct {
	codecs     serializer.CodecFactory
	scheme     *runtime.Scheme
	byResource map[schema.GroupVersionResource]*kind
	byType     map[reflect.Type]*kind
	byKind     map[schema.GroupVersionKind]*kind
}

// newKinds returns the kinds of the table builtinKinds and the further kinds.
func newKinds(further []Kind) (*kinds, error) {
	k := &kinds{
		scheme:     runtime.NewScheme(),
		byResource: map[schema.GroupVersionResource]*kind{},
		byType:     map[reflect.Type]*kind{},
		byKind:     map[schema.GroupVersionKind]*kind{},
	}
	if err := addTypes(k.scheme); err != nil {
		return nil, err
	}
	for _, b := range builtinKinds() {
		k.addKind(b)
	}
	events := k.byKind[eventsv1.SchemeGroupVersion.WithKind("Event")]
	events.alias = &alias{stored: k.kindOf(&corev1.Event{}), toStored: coreEvent, fromStored: newEvent}
	for i, f := range further {
		if err := k.addFurther(f); err != nil {
			return nil, fmt.Errorf("Options.Kinds[%d]: %w", i, err)
		}
	}
	metav1.AddToGroupVersion(k.scheme, schema.GroupVersion{Version: "v1"})
	k.codecs = serializer.NewCodecFactory(k.scheme)
	return k, nil
}

func (k *kinds) addKind(b builtin) {
	typ := reflect.TypeOf(b.object).Elem()
	added := &kind{
		GroupVersionKind: b.version.WithKind(typ.Name()), resource: b.resource, shortName: b.shortName, namespaced: b.namespaced,
		traits: b.traits, subresources: b.subresources, typ: typ,
	}
	_, added.hasStatus = typ.FieldByName("Status")
	k.byResource[b.version.WithResource(b.resource)] = added
	k.byType[typ] = added
	k.byKind[added.GroupVersionKind] = added
}

// addFurther adds a kind of Options.Kinds. The error names the invalid field.
func (k *kinds) addFurther(f Kind) error {
	version := schema.GroupVersion{Group: f.Group, Version: f.Version}
	for field, value := range map[string]string{"Group": f.Group, "Version": f.Version, "Kind": f.Kind, "Resource": f.Resource} {
		switch {
		case value == "":
			return fmt.Errorf("%s: required", field)
		case strings.Contains(value, "/"):
			return fmt.Errorf("%s: invalid value %q: contains a slash", field, value)
		}
	}
	added := &kind{
		GroupVersionKind: version.WithKind(f.Kind), resource: f.Resource, namespaced: f.Namespaced,
		traits: traits{versioned: true, generation: true, hasStatus: f.Status},
	}
	switch {
	case k.byResource[version.WithResource(f.Resource)] != nil:
		return fmt.Errorf("Resource: duplicate value %q of %s", f.Resource, version) //nolint:staticcheck // the name of the field
	case k.byKind[added.GroupVersionKind] != nil:
		return fmt.Errorf("Kind: duplicate value %q of %s", f.Kind, version)
	}
	if !k.scheme.IsVersionRegistered(version) {
		metav1.AddToGroupVersion(k.scheme, version) // for DeleteOptions
	}
	k.byResource[version.WithResource(f.Resource)] = added
	k.byKind[added.GroupVersionKind] = added
	return nil
}

// kindOf returns the server's description of the object's kind, or nil if the server does not support the kind.
func (k *kinds) kindOf(obj Object) *kind {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return k.byKind[u.GroupVersionKind()]
	}
	typ := reflect.TypeOf(obj)
	if typ == nil || typ.Kind() != reflect.Pointer {
		return nil
	}
	return k.byType[typ.Elem()]
}

// storedForm returns obj as the server stores it: as its Go type if it has one, and as the stored kind of an alias.
func (k *kinds) storedForm(obj Object) (Object, error) {
	kind := k.kindOf(obj)
	if kind == nil {
		return nil, unsupportedError(obj)
	}
	if u, ok := obj.(*unstructured.Unstructured); ok && kind.typ != nil {
		obj = kind.newObject()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
			return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return kind.toStored(obj), nil
}

// unsupportedError returns the error that the server does not support the kind of obj.
func unsupportedError(obj Object) error {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return fmt.Errorf("%s: kind is not supported; add it to Options.Kinds", u.GroupVersionKind())
	}
	return fmt.Errorf("type %T is not supported", obj)
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
