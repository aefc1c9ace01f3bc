// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/podfield"
)

func validateEnv(container podfield.Container, index nameIndex) field.ErrorList {
	var errs field.ErrorList
	for i, e := range container.Env {
		path := container.Path.Child("env").Index(i)
		if e.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), ""))
		} else {
			errs = append(errs, validateWith(path.Child("name"), e.Name, validation.IsRelaxedEnvVarName)...)
		}
		if e.ValueFrom == nil {
			continue
		}
		path = path.Child("valueFrom")
		sources := 0
		for _, set := range []bool{
			e.ValueFrom.FieldRef != nil, e.ValueFrom.ResourceFieldRef != nil, e.ValueFrom.ConfigMapKeyRef != nil,
			e.ValueFrom.SecretKeyRef != nil, e.ValueFrom.FileKeyRef != nil,
		} {
			if set {
				sources++
			}
		}
		switch {
		case sources != 1:
			errs = append(errs, field.Invalid(path, "", "must have exactly one source"))
		case e.Value != "":
			errs = append(errs, field.Invalid(path, "", "may not be specified when `value` is not empty"))
		case e.ValueFrom.FieldRef != nil:
			errs = append(errs, validateFieldRef(e.ValueFrom.FieldRef, path.Child("fieldRef"))...)
		case e.ValueFrom.ResourceFieldRef != nil:
			errs = append(errs, validateResourceRef(e.ValueFrom.ResourceFieldRef, path.Child("resourceFieldRef"))...)
		case e.ValueFrom.ConfigMapKeyRef != nil:
			r := e.ValueFrom.ConfigMapKeyRef
			errs = append(errs, validateKeyRef(r.Name, r.Key, path.Child("configMapKeyRef"))...)
		case e.ValueFrom.SecretKeyRef != nil:
			r := e.ValueFrom.SecretKeyRef
			errs = append(errs, validateKeyRef(r.Name, r.Key, path.Child("secretKeyRef"))...)
		case e.ValueFrom.FileKeyRef != nil:
			errs = append(errs, validateFileRef(index, e.ValueFrom.FileKeyRef, path.Child("fileKeyRef"))...)
		}
	}
	return errs
}

func validateFieldRef(ref *corev1.ObjectFieldSelector, path *field.Path) field.ErrorList {
	if ref.APIVersion == "v1" && ref.FieldPath == "spec.host" { // deprecated name of spec.nodeName
		return nil
	}
	return validateFieldOf(ref, path, podfield.FieldPaths())
}

// validateFieldOf checks that a field reference names one of the pod fields in fields, or one label or annotation, such as
// metadata.labels['app'].
func validateFieldOf(ref *corev1.ObjectFieldSelector, path *field.Path, fields []string) field.ErrorList {
	if ref.APIVersion != "v1" {
		return field.ErrorList{field.NotSupported(path.Child("apiVersion"), ref.APIVersion, []string{"v1"})}
	}
	path = path.Child("fieldPath")
	name, key, ok := podfield.SplitSubscript(ref.FieldPath)
	switch {
	case !ok:
		return validateOneOf(path, ref.FieldPath, fields...)
	case name == "metadata.annotations":
		return validateWith(path, strings.ToLower(key), validation.IsQualifiedName)
	case name == "metadata.labels":
		return validateWith(path, key, validation.IsQualifiedName)
	}
	return field.ErrorList{field.Invalid(path, ref.FieldPath, "does not support subscript")}
}

func validateResourceRef(ref *corev1.ResourceFieldSelector, path *field.Path) field.ErrorList {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	if ref.Resource == "" || kind != "limits" && kind != "requests" || !podfield.IsContainerResource(corev1.ResourceName(name)) {
		return validateOneOf(path.Child("resource"), ref.Resource, podfield.ResourceFields()...)
	}
	if ref.Divisor.IsZero() {
		return nil
	}
	divisors := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	if name == string(corev1.ResourceCPU) {
		divisors = []string{"1", "1m"}
	}
	return validateOneOf(path.Child("divisor"), ref.Divisor.String(), divisors...)
}

// validateKeyRef checks a reference to a key of a config map or secret: the name of the object and the key.
func validateKeyRef(name, key string, path *field.Path) field.ErrorList {
	errs := validateWith(path.Child("name"), name, validation.IsDNS1123Subdomain)
	if key == "" {
		return append(errs, field.Required(path.Child("key"), ""))
	}
	return append(errs, validateWith(path.Child("key"), key, validation.IsConfigMapKey)...)
}

// validateFileRef checks a reference to a variable in an environment file, which a container writes to an emptyDir
// (KEP-3721).
func validateFileRef(index nameIndex, ref *corev1.FileKeySelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	required := func(name, value string, valid func(string) []string) {
		if value == "" {
			errs = append(errs, field.Required(path.Child(name), ""))
		} else {
			errs = append(errs, validateWith(path.Child(name), value, valid)...)
		}
	}
	required("key", ref.Key, validation.IsRelaxedEnvVarName)
	required("volumeName", ref.VolumeName, validation.IsDNS1123Label)
	required("path", ref.Path, podfield.CheckNoBacksteps)
	if len(ref.Path) >= podfield.MaxPath {
		errs = append(errs, field.TooLong(path.Child("path"), nil, podfield.MaxPath-1)) // without the value, which later read errors would repeat
	}
	switch v := index.volumes[ref.VolumeName]; {
	case v == nil:
		errs = append(errs, field.NotFound(path.Child("volumeName"), ref.VolumeName))
	case v.EmptyDir == nil:
		errs = append(errs, field.Invalid(path.Child("volumeName"), ref.VolumeName, "must be of type emptyDir"))
	}
	return errs
}

func validateEnvFrom(sources []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	name := func(name string, path *field.Path) {
		if name == "" {
			errs = append(errs, field.Required(path, ""))
		} else {
			errs = append(errs, validateWith(path, name, validation.IsDNS1123Subdomain)...)
		}
	}
	for i, s := range sources {
		path := path.Index(i)
		if s.Prefix != "" {
			errs = append(errs, validateWith(path.Child("prefix"), s.Prefix, validation.IsRelaxedEnvVarName)...)
		}
		if (s.ConfigMapRef != nil) == (s.SecretRef != nil) {
			errs = append(errs, field.Invalid(path, "", "must have exactly one source"))
		}
		if s.ConfigMapRef != nil {
			name(s.ConfigMapRef.Name, path.Child("configMapRef", "name"))
		}
		if s.SecretRef != nil {
			name(s.SecretRef.Name, path.Child("secretRef", "name"))
		}
	}
	return errs
}
