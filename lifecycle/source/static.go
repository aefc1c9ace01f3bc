// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// The sources of pods, as the kubelet names them.
const (
	File = "file"
	URL  = "http"
)

// Annotations of static pods (pkg/kubelet/types/pod_update.go).
const (
	AnnotationHash   = "kubernetes.io/config.hash"   // the UID
	AnnotationSource = "kubernetes.io/config.source" // "file" or "http"
	AnnotationSeen   = "kubernetes.io/config.seen"   // when the pod was first read
)

// Origin is where a manifest comes from and for which node it is read.
type Origin struct {
	Source   string    // File or URL; for [Static] also empty
	Location string    // path or address; errors name it, and UIDs are made of it
	NodeName string    // pods are bound to it and named for it; empty: they keep their names
	Seen     time.Time // when it was read; zero: the pods do not say
	Objects  bool      // there are config maps, secrets, claims and CSI drivers, so pods may refer to them by name
	Tokens   bool      // there are tokens of service accounts, so pods may name one and project its token
}

// Static returns a pod that a program has built as the sources of this package return those of a manifest: a copy with
// a UID, the name and annotations of a static pod of the node, and defaults, if it can run. This is what
// lifecycle.Reconciler.Set takes. An error names all fields that are wrong. The pod that is passed in is not changed.
//
// A pod without a UID gets one that is made of its content, its status aside, and of the origin: the same pod has the
// same UID after a restart of the program, and one that was changed is another pod, which replaces the first. A field
// that a newer version of the API types always writes changes it, too. Static is called with the pod as it was built:
// it would name what it has returned for the node once more.
func Static(pod *corev1.Pod, o Origin) (*corev1.Pod, error) {
	switch {
	case pod == nil:
		return nil, errors.New("make static pod: it is nil")
	case pod.Name == "":
		return nil, errors.New("make static pod: metadata.name: required")
	}
	made := pod.DeepCopy()
	made.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"} // which pods of a client do not have
	made.Status = corev1.PodStatus{}
	raw, err := json.Marshal(made)
	if err != nil {
		return nil, fmt.Errorf("make static pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if _, errs := o.complete(made, raw); len(errs) > 0 {
		return nil, fmt.Errorf("make static pod %s/%s: %w", pod.Namespace, pod.Name, errs.ToAggregate())
	}
	return made, nil
}

// complete makes a pod that was just decoded from raw a static pod of the node with all defaults, and returns a sum of
// how it was written, or all errors of the first kind that it has: one mistake often shows in several kinds.
func (o Origin) complete(pod *corev1.Pod, raw []byte) (sum string, errs field.ErrorList) {
	sum = o.adopt(pod, raw)
	podapi.Default(pod)
	for _, check := range []func(*corev1.Pod) field.ErrorList{podapi.Validate, o.references, podapi.Unsupported} {
		if errs := check(pod); len(errs) > 0 {
			return "", errs
		}
	}
	return sum, nil
}

// adopt makes a pod that was just decoded from raw a static pod of the node, and returns a sum of how it was written.
// The scheme is that of the kubelet (pkg/kubelet/config/common.go, applyDefaults).
func (o Origin) adopt(pod *corev1.Pod, raw []byte) string {
	h := fnv.New128a()
	h.Write(canonical(raw))
	sum := hex.EncodeToString(h.Sum(nil))
	if pod.UID == "" {
		if o.Source == File {
			fmt.Fprintf(h, "host:%sfile:%s", o.NodeName, o.Location)
		} else {
			fmt.Fprintf(h, "url:%s", o.Location)
		}
		pod.UID = types.UID(hex.EncodeToString(h.Sum(nil)))
	}
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
	return sum
}

// tolerateNoExecute keeps a pod on its node whatever taints it gets.
func tolerateNoExecute(pod *corev1.Pod) {
	all := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.MatchToleration(&all) }) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, all)
	}
}

// canonical writes JSON without blanks and with sorted keys, so that neither format nor order count.
func canonical(raw []byte) []byte {
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

// references returns an error for each object of the API server that a static pod refers to: there may be no API
// server to get it from (pkg/api/pod/util.go, HasAPIObjectReference).
func (o Origin) references(pod *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	spec, path := &pod.Spec, field.NewPath("spec")
	refuse := func(set bool, path *field.Path, what string) {
		if set {
			errs = append(errs, field.Forbidden(path, "static pods may not reference "+what))
		}
	}
	object := func(set bool, path *field.Path, what string) { refuse(set && !o.Objects, path, what) }
	refuse(spec.ServiceAccountName != "" && !o.Tokens, path.Child("serviceAccountName"), "service accounts")
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

// projectsObjects reports whether a volume has anything in it that only an API server has, and that there is no other source of.
func (o Origin) projectsObjects(p *corev1.ProjectedVolumeSource) bool {
	return slices.ContainsFunc(p.Sources, func(s corev1.VolumeProjection) bool {
		switch {
		case s.DownwardAPI != nil:
			return false
		case s.ServiceAccountToken != nil:
			return !o.Tokens
		default:
			return !o.Objects || s.ConfigMap == nil && s.Secret == nil
		}
	})
}
