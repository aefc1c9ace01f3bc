// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Annotations of static pods and of their mirrors (pkg/kubelet/types/pod_update.go).
const (
	annotationHash   = "kubernetes.io/config.hash"
	annotationMirror = corev1.MirrorPodAnnotationKey
)

// MirrorInput is what [PlanMirrors] has to know besides pods.
type MirrorInput struct {
	Node            *corev1.Node // as the API server has it; nil or without a UID: it is not registered
	SourcesComplete bool         // the static pods are all that there are, so a mirror of none is an orphan
	// StillRunning reports whether a static pod of that name that no source lists any more still runs or terminates. Nil: none does.
	StillRunning func(namespace, name string) bool
	// Admitted reports whether a static pod may run on the node. Nil: each may.
	Admitted func(static *corev1.Pod) bool
	// NameTaken reports whether a pod of the API server that is no mirror has the name. Nil: none has.
	NameTaken func(namespace, name string) bool
}

// MirrorAction is what is to be done about one name.
type MirrorAction struct {
	Namespace, Name string
	Delete          *corev1.Pod // deleted first, by its UID and without grace; nil: nothing is
	Create          *corev1.Pod // created then; nil: nothing is
	Err             error       // why there is no mirror that there should be; nil where Create is not
}

// errNotRegistered says that no mirror can be created as there is no Node to own it.
var errNotRegistered = errors.New("the node is not registered, or is being deleted")

// PlanMirrors returns what has to be done so that each static pod has its mirror in the API server, and no other has one. A
// mirror stands for a static pod that has its name and the hash in its annotation kubernetes.io/config.mirror; one that does not,
// or that is being deleted, is replaced. The mirror of a static pod that no source lists any more stays until that pod has
// terminated, also where a successor has its name: the kubelet's pod worker does not sync the successor before. No mirror is created for
// a static pod that is not admitted, as after its rejection. Of two static pods with one name the first counts. Neither list is changed.
func PlanMirrors(static, mirrorPods []*corev1.Pod, in MirrorInput) (actions []MirrorAction) {
	byName := make(map[types.NamespacedName]*corev1.Pod, len(mirrorPods))
	for _, mirror := range mirrorPods {
		byName[namespacedNameOf(mirror)] = mirror
	}
	planned := make(map[types.NamespacedName]bool, len(static))
	for _, pod := range static {
		name := namespacedNameOf(pod)
		if planned[name] {
			continue
		}
		planned[name] = true
		mirror := byName[name]
		if isMirrorOf(mirror, pod) || in.isStillRunning(name) {
			continue
		}
		if in.Admitted == nil || in.Admitted(pod) {
			actions = append(actions, planMirror(pod, mirror, in))
		} else if mirror != nil {
			actions = append(actions, MirrorAction{Namespace: pod.Namespace, Name: pod.Name, Delete: mirror})
		}
	}
	if !in.SourcesComplete {
		return actions
	}
	for _, mirror := range mirrorPods {
		if !planned[namespacedNameOf(mirror)] && !in.isStillRunning(namespacedNameOf(mirror)) {
			actions = append(actions, MirrorAction{Namespace: mirror.Namespace, Name: mirror.Name, Delete: mirror})
		}
	}
	return actions
}

// isRunning reports whether a static pod of that name that no source lists any more still runs or terminates.
func (f *MirrorInput) isStillRunning(name types.NamespacedName) bool {
	return f.StillRunning != nil && f.StillRunning(name.Namespace, name.Name)
}

// isMirrorOf reports whether a mirror pod, which may be nil, stands for a static pod and is not being deleted.
func isMirrorOf(mirror, static *corev1.Pod) bool {
	return mirror != nil && mirror.DeletionTimestamp == nil && matchesStatic(mirror, static)
}

// planMirror returns the action that creates the mirror of a static pod, in place of the mirror of its name, which may be nil.
func planMirror(static, mirror *corev1.Pod, in MirrorInput) MirrorAction {
	action := MirrorAction{Namespace: static.Namespace, Name: static.Name, Delete: mirror}
	node := in.Node
	switch forbidden := findForbiddenReferences(static); {
	case len(forbidden) > 0:
		action.Err = fmt.Errorf("pod %s/%s cannot have a mirror: %w", static.Namespace, static.Name, forbidden.ToAggregate())
	case node == nil || node.UID == "" || node.DeletionTimestamp != nil:
		action.Err = fmt.Errorf("mirror of pod %s/%s: %w", static.Namespace, static.Name, errNotRegistered)
	case mirror == nil && in.NameTaken != nil && in.NameTaken(static.Namespace, static.Name):
		action.Err = fmt.Errorf("mirror of pod %s/%s: another pod of the API server has the name", static.Namespace, static.Name)
	default:
		action.Create = newMirror(static, node)
	}
	return action
}

func namespacedNameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// mirrors reports whether a mirror pod stands for a static pod as it is now.
func matchesStatic(mirror, static *corev1.Pod) bool {
	hash, ok := mirror.Annotations[annotationMirror]
	return ok && hash == static.Annotations[annotationHash] && namespacedNameOf(mirror) == namespacedNameOf(static)
}

// newMirror returns what a static pod is in the API server: itself, owned by the node, with its hash.
func newMirror(static *corev1.Pod, node *corev1.Node) *corev1.Pod {
	controller := true
	mirror := static.DeepCopy()
	mirror.ObjectMeta = metav1.ObjectMeta{
		Namespace: static.Namespace, Name: static.Name, Labels: mirror.Labels, Annotations: mirror.Annotations,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controller,
		}},
	}
	metav1.SetMetaDataAnnotation(&mirror.ObjectMeta, annotationMirror, static.Annotations[annotationHash])
	mirror.Status = corev1.PodStatus{}
	return mirror
}

// references returns an error for each object of the API that a pod refers to: no mirror may, as the API server would let a
// node read what its pods refer to (plugin/pkg/admission/noderestriction and pkg/api/pod of Kubernetes).
func findForbiddenReferences(pod *corev1.Pod) field.ErrorList {
	r := referenceFinder{}
	spec, path := &pod.Spec, field.NewPath("spec")
	r.checkField(spec.ServiceAccountName != "", path.Child("serviceAccountName"), "service accounts")
	r.checkField(slices.ContainsFunc(spec.ImagePullSecrets, func(s corev1.LocalObjectReference) bool { return s.Name != "" }),
		path.Child("imagePullSecrets"), "secrets")
	r.checkField(len(spec.ResourceClaims) > 0, path.Child("resourceClaims"), "resource claims")
	for i := range spec.InitContainers {
		r.checkContainer(&spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		r.checkContainer(&spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		r.checkContainer((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon), path.Child("ephemeralContainers").Index(i))
	}
	for i := range spec.Volumes {
		r.checkVolume(&spec.Volumes[i], path.Child("volumes").Index(i))
	}
	return r.errs
}

type referenceFinder struct{ errs field.ErrorList }

func (r *referenceFinder) checkField(set bool, path *field.Path, objects string) {
	const enough = 10
	if set && len(r.errs) < enough {
		r.errs = append(r.errs, field.Forbidden(path, "mirror pods may not reference "+objects))
	}
}

func (r *referenceFinder) checkContainer(c *corev1.Container, path *field.Path) {
	for i, from := range c.EnvFrom {
		r.checkField(from.SecretRef != nil && from.SecretRef.Name != "", path.Child("envFrom").Index(i).Child("secretRef"), "secrets")
		r.checkField(from.ConfigMapRef != nil && from.ConfigMapRef.Name != "", path.Child("envFrom").Index(i).Child("configMapRef"), "config maps")
	}
	for i, env := range c.Env {
		if from := env.ValueFrom; from != nil {
			at := path.Child("env").Index(i).Child("valueFrom")
			r.checkField(from.SecretKeyRef != nil && from.SecretKeyRef.Name != "", at.Child("secretKeyRef"), "secrets")
			r.checkField(from.ConfigMapKeyRef != nil && from.ConfigMapKeyRef.Name != "", at.Child("configMapKeyRef"), "config maps")
		}
	}
}

// volume knows the volumes without a reference; all others, and those of a later version, have one.
func (r *referenceFinder) checkVolume(v *corev1.Volume, path *field.Path) {
	switch {
	case v.Projected != nil:
		for i, s := range v.Projected.Sources {
			r.checkField(s.DownwardAPI == nil || s.ConfigMap != nil || s.Secret != nil || s.ServiceAccountToken != nil ||
				s.ClusterTrustBundle != nil || s.PodCertificate != nil, path.Child("projected", "sources").Index(i), "objects of the API server")
		}
	default:
		r.checkField(!hasNoAPIReference(v) || hasSecretRef(v), path, "objects of the API server by this kind of volume")
	}
}

// withoutReference reports whether a volume is of a kind that names no object of the API, or only a secret.
func hasNoAPIReference(v *corev1.Volume) bool {
	return v.AWSElasticBlockStore != nil || v.AzureDisk != nil || v.CephFS != nil || v.Cinder != nil || v.DownwardAPI != nil ||
		v.EmptyDir != nil || v.FC != nil || v.FlexVolume != nil || v.Flocker != nil || v.GCEPersistentDisk != nil ||
		v.GitRepo != nil || v.HostPath != nil || v.Image != nil || v.ISCSI != nil || v.NFS != nil ||
		v.PhotonPersistentDisk != nil || v.PortworxVolume != nil || v.Quobyte != nil || v.RBD != nil || v.ScaleIO != nil ||
		v.StorageOS != nil || v.VsphereVolume != nil
}

// secretOf reports whether a volume names a secret besides.
func hasSecretRef(v *corev1.Volume) bool {
	switch {
	case v.CephFS != nil:
		return hasName(v.CephFS.SecretRef)
	case v.Cinder != nil:
		return hasName(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		return hasName(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		return hasName(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		return hasName(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		return hasName(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		return hasName(v.StorageOS.SecretRef)
	}
	return false
}

func hasName(ref *corev1.LocalObjectReference) bool { return ref != nil && ref.Name != "" }
