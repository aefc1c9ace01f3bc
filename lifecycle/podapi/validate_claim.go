// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"fmt"
	"path"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateStorage checks a volume of type persistentVolumeClaim, ephemeral or nfs.
func validateStorage(volume *corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := volume.PersistentVolumeClaim; s != nil {
		errs = append(errs, required(path.Child("persistentVolumeClaim", "claimName"), s.ClaimName)...)
	}
	if s := volume.Ephemeral; s != nil {
		path := path.Child("ephemeral", "volumeClaimTemplate")
		if s.VolumeClaimTemplate == nil {
			errs = append(errs, field.Required(path, ""))
		} else {
			errs = append(errs, validateTemplate(s.VolumeClaimTemplate, path)...)
		}
	}
	if s := volume.NFS; s != nil {
		errs = append(errs, validateNFS(s, path.Child("nfs"))...)
	}
	return errs
}

func validateNFS(nfs *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	errs := required(at.Child("server"), nfs.Server)
	errs = append(errs, required(at.Child("path"), nfs.Path)...)
	if !path.IsAbs(nfs.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), nfs.Path, "must be an absolute path"))
	}
	return errs
}

// validateTemplate checks the claim template of an ephemeral volume. Its metadata may have only labels and annotations.
func validateTemplate(template *corev1.PersistentVolumeClaimTemplate, path *field.Path) field.ErrorList {
	meta := path.Child("metadata")
	errs := apivalidation.ValidateAnnotations(template.Annotations, meta.Child("annotations"))
	errs = append(errs, metavalidation.ValidateLabels(template.Labels, meta.Child("labels"))...)
	rest := template.ObjectMeta
	rest.Labels, rest.Annotations = nil, nil
	if !reflect.ValueOf(rest).IsZero() {
		errs = append(errs, field.Forbidden(meta, "must have only labels and annotations"))
	}
	return append(errs, validateClaimSpec(&template.Spec, path.Child("spec"))...)
}

func validateClaimSpec(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	errs := validateAccessModes(spec.AccessModes, path.Child("accessModes"))
	if spec.Selector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
	}
	size, storage := spec.Resources.Requests[corev1.ResourceStorage], path.Child("resources").Key(string(corev1.ResourceStorage))
	switch _, ok := spec.Resources.Requests[corev1.ResourceStorage]; {
	case !ok:
		errs = append(errs, field.Required(storage, ""))
	case size.Sign() <= 0:
		errs = append(errs, field.Invalid(storage, size.String(), "must be greater than zero"))
	}
	for name, class := range map[string]*string{"storageClassName": spec.StorageClassName, "volumeAttributesClassName": spec.VolumeAttributesClassName} {
		if class != nil && *class != "" {
			errs = append(errs, validateWith(path.Child(name), *class, validation.IsDNS1123Subdomain)...)
		}
	}
	if spec.VolumeMode != nil {
		errs = append(errs, validateOneOf(path.Child("volumeMode"), *spec.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)...)
	}
	return errs
}

func validateAccessModes(modes []corev1.PersistentVolumeAccessMode, path *field.Path) field.ErrorList {
	if len(modes) == 0 {
		return field.ErrorList{field.Required(path, "at least 1 access mode is required")}
	}
	valid := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
	var errs field.ErrorList
	once, others := false, false
	for _, m := range modes {
		switch {
		case m == corev1.ReadWriteOncePod:
			once = true
		case slices.Contains(valid, m):
			others = true
		default:
			errs = append(errs, field.NotSupported(path, m, valid))
		}
	}
	if once && others {
		errs = append(errs, field.Forbidden(path, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

// validateClaimNames checks the names POD-VOLUME of the claims for ephemeral volumes, to which no other volume may refer.
func validateClaimNames(pod *corev1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	created := make(map[string]bool)
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Ephemeral != nil && pod.Name != "" {
			created[pod.Name+"-"+v.Name] = true
		}
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if c := v.PersistentVolumeClaim; c != nil && created[c.ClaimName] {
			errs = append(errs, field.Invalid(path.Index(i).Child("persistentVolumeClaim", "claimName"), c.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume"))
		}
		if v.Ephemeral == nil || pod.Name == "" || v.Name == "" {
			continue
		}
		name := pod.Name + "-" + v.Name
		for _, msg := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(path.Index(i).Child("name"), v.Name, fmt.Sprintf("PVC name %q: %v", name, msg)))
		}
	}
	return errs
}
