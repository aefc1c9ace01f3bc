// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

func validateVolumes(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := make(map[string]bool)
	for i := range spec.Volumes {
		v, path := &spec.Volumes[i], path.Index(i)
		switch {
		case v.Name == "":
			errs = append(errs, field.Required(path.Child("name"), ""))
		case names[v.Name]:
			errs = append(errs, field.Duplicate(path.Child("name"), v.Name))
		default:
			errs = append(errs, validateWith(path.Child("name"), v.Name, validation.IsDNS1123Label)...)
		}
		names[v.Name] = true
		if n := countSources(v.VolumeSource); n != 1 {
			errs = append(errs, field.Invalid(path, v.Name, "must have exactly one source"))
		}
		if spec.ServiceAccountName == "" {
			errs = append(errs, validateNoTokens(v, path)...)
		}
		if errs = append(errs, validateSource(v, path)...); len(errs) > fielderr.MaxErrors {
			break
		}
	}
	return errs
}

// validateNoTokens returns an error for each service account token in a volume of a pod without a service account.
func validateNoTokens(volume *corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, s := range optional.OrZero(volume.Projected).Sources {
		if s.ServiceAccountToken != nil {
			errs = append(errs, field.Forbidden(path.Child("projected", "sources").Index(i).Child("serviceAccountToken"),
				"must not be specified when serviceAccountName is not set"))
		}
	}
	return errs
}

// countSources returns how many sources of a volume are set.
func countSources(source corev1.VolumeSource) int {
	n := 0
	for i := range reflect.TypeFor[corev1.VolumeSource]().NumField() {
		if !reflect.ValueOf(source).Field(i).IsNil() {
			n++
		}
	}
	return n
}

// validateSource checks the source of a volume. Volume types that this package does not support are not checked.
func validateSource(volume *corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := volume.Image; s != nil {
		path := path.Child("image")
		if s.Reference == "" {
			errs = append(errs, field.Required(path.Child("reference"), ""))
		}
		errs = append(errs, validateOneOf(path.Child("pullPolicy"), s.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	}
	if s := volume.EmptyDir; s != nil && s.SizeLimit != nil && s.SizeLimit.Sign() < 0 {
		errs = append(errs, field.Forbidden(path.Child("emptyDir", "sizeLimit"), "must be a valid resource quantity"))
	}
	if s := volume.EmptyDir; s != nil && s.Mode != nil && (*s.Mode < 0 || *s.Mode > 0o1777) {
		errs = append(errs, field.Invalid(path.Child("emptyDir", "mode"), *s.Mode, "must be a number between 0 and 01777 (octal), both inclusive"))
	}
	if s := volume.HostPath; s != nil {
		errs = append(errs, validateHostPath(s, path.Child("hostPath"))...)
	}
	if s := volume.ConfigMap; s != nil {
		path := path.Child("configMap")
		errs = append(errs, required(path.Child("name"), s.Name)...)
		errs = append(errs, validateMode(path.Child("defaultMode"), s.DefaultMode)...)
		errs = append(errs, validateItems(s.Items, path.Child("items"), nil)...)
	}
	if s := volume.Secret; s != nil {
		path := path.Child("secret")
		errs = append(errs, required(path.Child("secretName"), s.SecretName)...)
		errs = append(errs, validateMode(path.Child("defaultMode"), s.DefaultMode)...)
		errs = append(errs, validateItems(s.Items, path.Child("items"), nil)...)
	}
	if s := volume.DownwardAPI; s != nil {
		path := path.Child("downwardAPI")
		errs = append(errs, validateMode(path.Child("defaultMode"), s.DefaultMode)...)
		errs = append(errs, validateDownwardFiles(s.Items, path.Child("items"), nil)...)
	}
	if s := volume.Projected; s != nil {
		errs = append(errs, validateProjected(s, path.Child("projected"))...)
	}
	return append(errs, validateStorage(volume, path)...)
}

func required(path *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

func validateHostPath(hostPath *corev1.HostPathVolumeSource, path *field.Path) field.ErrorList {
	if hostPath.Path == "" {
		return field.ErrorList{field.Required(path.Child("path"), "")}
	}
	errs := validateWith(path.Child("path"), hostPath.Path, podfield.CheckNoBacksteps)
	if t := *optional.OrZero(hostPath.Type); t != corev1.HostPathUnset {
		errs = append(errs, validateOneOf(path.Child("type"), t, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory,
			corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)...)
	}
	return errs
}

func validateMode(path *field.Path, mode *int32) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

// pathSet has the file paths that the sources of a projected volume use. It is nil for a volume with one source.
type pathSet map[string]bool

// validateFilePath checks the relative path of a file in a volume. If taken is not nil, the path must not be in it, and is
// added.
func validateFilePath(filePath string, path *field.Path, taken pathSet) field.ErrorList {
	if filePath == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := validateWith(path, filePath, podfield.CheckRelative)
	if strings.HasPrefix(filePath, "..") && len(errs) == 0 {
		errs = append(errs, field.Invalid(path, filePath, "must not start with '..'"))
	}
	if taken[filePath] {
		errs = append(errs, field.Invalid(path, filePath, "conflicting duplicate paths"))
	}
	if taken != nil {
		taken[filePath] = true
	}
	return errs
}

// validateItems checks the keys of a config map or secret, and the paths of their files in a volume. For taken see
// validateFilePath.
func validateItems(items []corev1.KeyToPath, path *field.Path, taken pathSet) field.ErrorList {
	var errs field.ErrorList
	for i, item := range items {
		path := path.Index(i)
		errs = append(errs, required(path.Child("key"), item.Key)...)
		errs = append(errs, validateFilePath(item.Path, path.Child("path"), taken)...)
		if errs = append(errs, validateMode(path.Child("mode"), item.Mode)...); len(errs) > fielderr.MaxErrors {
			break
		}
	}
	return errs
}

// validateDownwardFiles checks the files of a downward API volume. For taken see validateFilePath.
func validateDownwardFiles(items []corev1.DownwardAPIVolumeFile, path *field.Path, taken pathSet) field.ErrorList {
	var errs field.ErrorList
	for i := range items {
		item, path := &items[i], path.Index(i)
		errs = append(errs, validateFilePath(item.Path, path.Child("path"), taken)...)
		switch {
		case item.FieldRef != nil && item.ResourceFieldRef != nil:
			errs = append(errs, field.Invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		case item.FieldRef != nil:
			errs = append(errs, validateFieldOf(item.FieldRef, path.Child("fieldRef"), podfield.VolumeFieldPaths())...)
		case item.ResourceFieldRef != nil:
			errs = append(errs, required(path.Child("resourceFieldRef", "containerName"), item.ResourceFieldRef.ContainerName)...)
			errs = append(errs, validateResourceRef(item.ResourceFieldRef, path.Child("resourceFieldRef"))...)
		default:
			errs = append(errs, field.Required(path, "one of fieldRef and resourceFieldRef is required"))
		}
		if errs = append(errs, validateMode(path.Child("mode"), item.Mode)...); len(errs) > fielderr.MaxErrors {
			break
		}
	}
	return errs
}

func validateProjected(projected *corev1.ProjectedVolumeSource, path *field.Path) field.ErrorList {
	errs := validateMode(path.Child("defaultMode"), projected.DefaultMode)
	taken := pathSet{}
	for i := range projected.Sources {
		if errs = append(errs, validateProjection(&projected.Sources[i], path.Child("sources").Index(i), taken)...); len(errs) > fielderr.MaxErrors {
			break
		}
	}
	return errs
}

func validateProjection(projection *corev1.VolumeProjection, path *field.Path, taken pathSet) field.ErrorList {
	var errs field.ErrorList
	n := 0
	if projection.ConfigMap != nil {
		n++
		path := path.Child("configMap")
		errs = append(errs, required(path.Child("name"), projection.ConfigMap.Name)...)
		errs = append(errs, validateItems(projection.ConfigMap.Items, path.Child("items"), taken)...)
	}
	if projection.Secret != nil {
		n++
		path := path.Child("secret")
		errs = append(errs, required(path.Child("name"), projection.Secret.Name)...)
		errs = append(errs, validateItems(projection.Secret.Items, path.Child("items"), taken)...)
	}
	if projection.DownwardAPI != nil {
		n++
		errs = append(errs, validateDownwardFiles(projection.DownwardAPI.Items, path.Child("downwardAPI", "items"), taken)...)
	}
	if projection.ServiceAccountToken != nil {
		n++
		errs = append(errs, validateToken(projection.ServiceAccountToken, path.Child("serviceAccountToken"))...)
	}
	if projection.ClusterTrustBundle != nil {
		n++
		errs = append(errs, validateTrustBundle(projection.ClusterTrustBundle, path.Child("clusterTrustBundle"), taken)...)
	}
	if projection.PodCertificate != nil {
		n++
		errs = append(errs, validateCertificate(projection.PodCertificate, path.Child("podCertificate"), taken)...)
	}
	if n > 1 { // no source means an empty projection
		errs = append(errs, field.Forbidden(path, "may not specify more than 1 volume type"))
	}
	return errs
}

// validateToken checks the path and expiration of a service account token in a projected volume. Another source of the
// volume may use the same path: the token then replaces its file.
func validateToken(token *corev1.ServiceAccountTokenProjection, path *field.Path) field.ErrorList {
	errs := validateFilePath(token.Path, path.Child("path"), nil)
	path = path.Child("expirationSeconds")
	switch {
	case token.ExpirationSeconds == nil:
		errs = append(errs, field.Required(path, ""))
	case *token.ExpirationSeconds < 600:
		errs = append(errs, field.Invalid(path, *token.ExpirationSeconds, "may not specify a duration less than 10 minutes"))
	case *token.ExpirationSeconds > 1<<32:
		errs = append(errs, field.Invalid(path, *token.ExpirationSeconds, "may not specify a duration larger than 2^32 seconds"))
	}
	return errs
}

func validateTrustBundle(bundle *corev1.ClusterTrustBundleProjection, path *field.Path, taken pathSet) field.ErrorList {
	errs := validateFilePath(bundle.Path, path.Child("path"), taken)
	switch {
	case bundle.Name != nil && bundle.SignerName != nil:
		errs = append(errs, field.Invalid(path, "", "only one of name and signerName may be used"))
	case bundle.Name != nil:
		errs = append(errs, required(path.Child("name"), *bundle.Name)...)
		if bundle.LabelSelector != nil {
			errs = append(errs, field.Invalid(path.Child("labelSelector"), "", "labelSelector must be unset if name is specified"))
		}
	case bundle.SignerName != nil:
		errs = append(errs, required(path.Child("signerName"), *bundle.SignerName)...)
	default:
		errs = append(errs, field.Required(path, "either name or signerName must be specified"))
	}
	return errs
}

func validateCertificate(certificate *corev1.PodCertificateProjection, path *field.Path, taken pathSet) field.ErrorList {
	errs := required(path.Child("signerName"), certificate.SignerName)
	errs = append(errs, validateOneOf(path.Child("keyType"), certificate.KeyType, "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")...)
	if seconds := certificate.MaxExpirationSeconds; seconds != nil && *seconds < 3600 {
		errs = append(errs, field.Invalid(path.Child("maxExpirationSeconds"), *seconds, "if provided, maxExpirationSeconds must be >= 3600"))
	}
	n := 0
	for _, file := range []struct{ name, at string }{
		{"credentialBundlePath", certificate.CredentialBundlePath}, {"keyPath", certificate.KeyPath}, {"certificateChainPath", certificate.CertificateChainPath},
	} {
		if file.at != "" {
			n++
			errs = append(errs, validateFilePath(file.at, path.Child(file.name), taken)...)
		}
	}
	if n == 0 {
		errs = append(errs, field.Required(path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
	return errs
}
