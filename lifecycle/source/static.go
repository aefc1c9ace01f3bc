// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podhash"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// Names of manifest sources in the kubelet, for [Origin].Source.
const (
	File = "file"
	URL  = "http"
)

// Annotations of static pods (pkg/kubelet/types/pod_update.go).
const (
	AnnotationHash   = "kubernetes.io/config.hash"   // the UID
	AnnotationSource = "kubernetes.io/config.source" // "file" or "http"
	AnnotationSeen   = "kubernetes.io/config.seen"   // time when the pod was first read
)

// Origin describes where a manifest comes from, which node it is for, and which references its pods may have.
type Origin struct {
	Source       string    // File or URL; may be empty for the function Static
	Location     string    // path or URL of the manifest, for errors and UIDs
	NodeName     string    // value of spec.nodeName, also appended to the name of each pod; empty: neither
	Seen         time.Time // time when the manifest was read, for AnnotationSeen; zero: no annotation
	AllowObjects bool      // pods may refer to config maps, secrets, claims and CSI drivers, because the agent can read such objects
	AllowTokens  bool      // pods may name a service account and mount its token, because the agent can request tokens

	configured string // path or URL as the user has configured it, for UIDs; empty: Location
}

// Static returns a static pod for a pod that is built in code. The result is a copy with the UID, name, annotations and
// defaults of a static pod of this node, so that lifecycle.Reconciler.Set accepts it. The error names all invalid fields.
//
// If the pod has no UID, Static computes one from its content without status, and from origin. The UID is stable across
// restarts. A changed pod gets another UID and replaces the previous pod. A new version of the API types may change the UID
// too. [Parse] computes another UID, that of the kubelet. Do not pass the result of Static to Static: the node name would be
// appended twice.
func Static(pod *corev1.Pod, origin Origin) (*corev1.Pod, error) {
	switch {
	case pod == nil:
		return nil, errors.New("make static pod: pod is nil")
	case pod.Name == "":
		return nil, errors.New("make static pod: metadata.name: required")
	}
	made := pod.DeepCopy()
	made.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"} // pods from a client lack it
	made.Status = corev1.PodStatus{}
	raw, err := json.Marshal(made)
	if err != nil {
		return nil, fmt.Errorf("make static pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	h := fnv.New128a()
	h.Write(canonicalJSON(raw))
	podapi.Default(made)
	if errs := origin.completeStatic(made, origin.uidOf(h)); len(errs) > 0 {
		return nil, fmt.Errorf("make static pod %s/%s: %w", pod.Namespace, pod.Name, errs.ToAggregate())
	}
	return made, nil
}

// completeManifest sets the defaults and metadata of a pod as decoded from a manifest, and validates it. sum is the hash of its
// content.
func (o Origin) completeManifest(pod *corev1.Pod, inPodList bool) (sum string, errs field.ErrorList) {
	podapi.Default(pod)
	podhash.Default(pod)
	hashed := *pod
	if !inPodList {
		// The kubelet's conversion drops kind and apiVersion of a pod, but not of an item of a PodList.
		hashed.TypeMeta = metav1.TypeMeta{}
	}
	h := podhash.New(&hashed)
	sum = hex.EncodeToString(h.Sum(nil))
	return sum, o.completeStatic(pod, o.uidOf(h))
}

// uidOf returns the UID of a static pod, given the hash of its content. It writes the origin to the hash. Source: applyDefaults
// in pkg/kubelet/config/common.go.
func (o Origin) uidOf(content hash.Hash) types.UID {
	location := cmp.Or(o.configured, o.Location)
	if o.Source == File {
		fmt.Fprintf(content, "host:%sfile:%s", o.NodeName, location)
	} else {
		fmt.Fprintf(content, "url:%s", location)
	}
	return types.UID(hex.EncodeToString(content.Sum(nil)))
}

// completeStatic sets the metadata of a static pod that has its defaults, and validates it. uid is for a pod without UID.
func (o Origin) completeStatic(pod *corev1.Pod, uid types.UID) field.ErrorList {
	pod.UID = cmp.Or(pod.UID, uid)
	o.setStaticMetadata(pod)
	for _, check := range []func(*corev1.Pod) field.ErrorList{podapi.Validate, o.checkReferences, podapi.Unsupported} {
		// Later checks would often report the same mistake again.
		if errs := check(pod); len(errs) > 0 {
			return errs
		}
	}
	return nil
}

// setStaticMetadata sets the name, namespace, annotations and status of a static pod with a UID. Source: applyDefaults in
// pkg/kubelet/config/common.go.
func (o Origin) setStaticMetadata(pod *corev1.Pod) {
	if o.NodeName != "" {
		pod.Name += "-" + strings.ToLower(o.NodeName)
		pod.Spec.NodeName = o.NodeName
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, AnnotationHash, string(pod.UID))
	if o.Source != "" {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, AnnotationSource, o.Source)
	}
	if !o.Seen.IsZero() {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, AnnotationSeen, o.Seen.Format(time.RFC3339Nano))
	}
	if o.Source == File {
		tolerateNoExecute(pod)
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
}

// tolerateNoExecute adds a toleration for all NoExecute taints to the pod.
func tolerateNoExecute(pod *corev1.Pod) {
	all := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.MatchToleration(&all) }) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, all)
	}
}

// canonicalJSON returns JSON without whitespace and with sorted keys, so that its hash does not depend on the formatting.
// Invalid JSON is returned unchanged.
func canonicalJSON(raw []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return raw
	}
	b, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return b
}

// checkReferences returns an error for each object of the API server, such as a secret, that a static pod refers to and may not
// use. Source: HasAPIObjectReference in pkg/api/pod/util.go.
func (o Origin) checkReferences(pod *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	spec, path := &pod.Spec, field.NewPath("spec")
	refuse := func(set bool, path *field.Path, kind string) {
		if set {
			errs = append(errs, field.Forbidden(path, "static pods may not reference "+kind))
		}
	}
	object := func(set bool, path *field.Path, kind string) { refuse(set && !o.AllowObjects, path, kind) }
	refuse(spec.ServiceAccountName != "" && !o.AllowTokens, path.Child("serviceAccountName"), "service accounts")
	object(len(spec.ImagePullSecrets) > 0, path.Child("imagePullSecrets"), "secrets")
	refuse(len(spec.ResourceClaims) > 0, path.Child("resourceClaims"), "resource claims")
	container := func(c *corev1.Container, path *field.Path) {
		for i, from := range c.EnvFrom {
			object(from.ConfigMapRef != nil, path.Child("envFrom").Index(i).Child("configMapRef"), "config maps")
			object(from.SecretRef != nil, path.Child("envFrom").Index(i).Child("secretRef"), "secrets")
		}
		for i, e := range c.Env {
			if from := e.ValueFrom; from != nil {
				object(from.ConfigMapKeyRef != nil, path.Child("env").Index(i).Child("valueFrom", "configMapKeyRef"), "config maps")
				object(from.SecretKeyRef != nil, path.Child("env").Index(i).Child("valueFrom", "secretKeyRef"), "secrets")
			}
		}
	}
	for i := range spec.InitContainers {
		container(&spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		container(&spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		container((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon), path.Child("ephemeralContainers").Index(i))
	}
	for i, v := range spec.Volumes {
		path := path.Child("volumes").Index(i)
		object(v.ConfigMap != nil, path.Child("configMap"), "config maps")
		object(v.Secret != nil, path.Child("secret"), "secrets")
		object(v.PersistentVolumeClaim != nil, path.Child("persistentVolumeClaim"), "persistent volume claims")
		object(v.Ephemeral != nil, path.Child("ephemeral"), "persistent volume claims")
		object(v.CSI != nil, path.Child("csi"), "CSI drivers")
		if v.Projected != nil {
			refuse(o.projectsObjects(v.Projected), path.Child("projected"), "objects of the API server")
		}
	}
	return errs
}

// projectsObjects reports whether a projected volume has a source that this agent cannot provide, such as a cluster trust
// bundle, or a secret if AllowObjects is false.
func (o Origin) projectsObjects(projected *corev1.ProjectedVolumeSource) bool {
	return slices.ContainsFunc(projected.Sources, func(s corev1.VolumeProjection) bool {
		switch {
		case s.DownwardAPI != nil:
			return false
		case s.ServiceAccountToken != nil:
			return !o.AllowTokens
		default:
			return !o.AllowObjects || s.ConfigMap == nil && s.Secret == nil
		}
	})
}
