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

// MirrorInput is the state that [PlanMirrors] needs in addition to the static pods and mirror pods.
type MirrorInput struct {
	Node            *corev1.Node // in the API server; nil or without a UID: not registered
	SourcesComplete bool         // all sources have reported, so that a mirror without a static pod is orphaned
	// StillRunning reports whether a static pod of that name runs or terminates although no source lists it. Nil: no
	// such pod.
	StillRunning func(namespace, name string) bool
	// Admitted reports whether a static pod is admitted to the node. Nil: all static pods are admitted.
	Admitted func(static *corev1.Pod) bool
	// NameTaken reports whether a pod in the API server that is not a mirror pod has the name. Nil: no such pod.
	NameTaken func(namespace, name string) bool
}

// MirrorAction is the change of the mirror pod of one name.
type MirrorAction struct {
	Namespace, Name string
	Delete          *corev1.Pod // deleted first, by UID and without grace period; nil: none
	Create          *corev1.Pod // created after the deletion; nil: none
	Err             error       // why a required mirror cannot be created; nil if Create is set
}

// errNotRegistered reports that no mirror pod can be created, because there is no Node object to own it.
var errNotRegistered = errors.New("the node is not registered, or is being deleted")

// PlanMirrors returns the actions after which each static pod has one mirror pod in the API server, and no other mirror pods
// exist. A mirror pod belongs to the static pod with the same name if its annotation kubernetes.io/config.mirror has the
// hash of the static pod. A mirror pod with a different hash, or that is being deleted, is replaced.
//
// The mirror pod of a static pod that no source lists any more stays until the static pod has terminated, as in the kubelet.
// A static pod that is not admitted gets no mirror pod. Of two static pods with one name, the first gets the mirror pod.
// PlanMirrors does not change its arguments.
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

// isStillRunning reports whether a static pod with this name is running or terminating although no source lists it any more.
func (f *MirrorInput) isStillRunning(name types.NamespacedName) bool {
	return f.StillRunning != nil && f.StillRunning(name.Namespace, name.Name)
}

// isMirrorOf reports whether mirror is the mirror pod of the static pod and is not being deleted. If mirror is nil, the
// result is false.
func isMirrorOf(mirror, static *corev1.Pod) bool {
	return mirror != nil && mirror.DeletionTimestamp == nil && matchesStatic(mirror, static)
}

// planMirror returns the action that replaces the present mirror pod, which may be nil, or an action with the error that
// prevents this.
func planMirror(static, present *corev1.Pod, in MirrorInput) MirrorAction {
	action := MirrorAction{Namespace: static.Namespace, Name: static.Name, Delete: present}
	node := in.Node
	switch forbidden := findForbiddenReferences(static); {
	case len(forbidden) > 0:
		action.Err = fmt.Errorf("pod %s/%s cannot have a mirror: %w", static.Namespace, static.Name, forbidden.ToAggregate())
	case node == nil || node.UID == "" || node.DeletionTimestamp != nil:
		action.Err = fmt.Errorf("mirror of pod %s/%s: %w", static.Namespace, static.Name, errNotRegistered)
	case present == nil && in.NameTaken != nil && in.NameTaken(static.Namespace, static.Name):
		action.Err = fmt.Errorf("mirror of pod %s/%s: a pod that is no mirror pod has its name", static.Namespace, static.Name)
	default:
		action.Create = newMirror(static, node)
	}
	return action
}

func namespacedNameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// matchesStatic reports whether the mirror pod has the namespace and name of the static pod, and its config hash in the
// mirror annotation.
func matchesStatic(mirror, static *corev1.Pod) bool {
	hash, ok := mirror.Annotations[annotationMirror]
	return ok && hash == static.Annotations[annotationHash] && namespacedNameOf(mirror) == namespacedNameOf(static)
}

// newMirror returns the mirror pod to create for a static pod: a copy that the node owns, with the pod's config hash.
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

// findForbiddenReferences returns an error for each field that forbids a mirror pod, because it refers to an API object.
// Source: plugin/pkg/admission/noderestriction and pkg/api/pod.
func findForbiddenReferences(pod *corev1.Pod) field.ErrorList {
	// the API server permits a node to read the objects to which its pods refer
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

// checkField adds an error for the field at path if it is set. objects is what it refers to, for the error text.
func (r *referenceFinder) checkField(set bool, path *field.Path, objects string) {
	const enough = 10
	if set && len(r.errs) < enough {
		r.errs = append(r.errs, field.Forbidden(path, "mirror pods may not reference "+objects))
	}
}

func (r *referenceFinder) checkContainer(container *corev1.Container, path *field.Path) {
	for i, from := range container.EnvFrom {
		r.checkField(from.SecretRef != nil && from.SecretRef.Name != "", path.Child("envFrom").Index(i).Child("secretRef"), "secrets")
		r.checkField(from.ConfigMapRef != nil && from.ConfigMapRef.Name != "", path.Child("envFrom").Index(i).Child("configMapRef"), "config maps")
	}
	for i, env := range container.Env {
		if from := env.ValueFrom; from != nil {
			at := path.Child("env").Index(i).Child("valueFrom")
			r.checkField(from.SecretKeyRef != nil && from.SecretKeyRef.Name != "", at.Child("secretKeyRef"), "secrets")
			r.checkField(from.ConfigMapKeyRef != nil && from.ConfigMapKeyRef.Name != "", at.Child("configMapKeyRef"), "config maps")
		}
	}
}

// checkVolume adds an error if the volume refers to an API object, or may do so because its type is unknown.
func (r *referenceFinder) checkVolume(volume *corev1.Volume, path *field.Path) {
	switch {
	case volume.Projected != nil:
		for i, s := range volume.Projected.Sources {
			r.checkField(s.DownwardAPI == nil || s.ConfigMap != nil || s.Secret != nil || s.ServiceAccountToken != nil ||
				s.ClusterTrustBundle != nil || s.PodCertificate != nil, path.Child("projected", "sources").Index(i), "objects of the API server")
		}
	default:
		r.checkField(!hasNoAPIReference(volume) || hasSecretRef(volume), path, "objects of the API server by this kind of volume")
	}
}

// hasNoAPIReference reports whether the volume refers to no API object other than a secret. It returns false for an unknown
// volume type.
func hasNoAPIReference(volume *corev1.Volume) bool {
	return volume.AWSElasticBlockStore != nil || volume.AzureDisk != nil || volume.CephFS != nil || volume.Cinder != nil || volume.DownwardAPI != nil ||
		volume.EmptyDir != nil || volume.FC != nil || volume.FlexVolume != nil || volume.Flocker != nil || volume.GCEPersistentDisk != nil ||
		volume.GitRepo != nil || volume.HostPath != nil || volume.Image != nil || volume.ISCSI != nil || volume.NFS != nil ||
		volume.PhotonPersistentDisk != nil || volume.PortworxVolume != nil || volume.Quobyte != nil || volume.RBD != nil || volume.ScaleIO != nil ||
		volume.StorageOS != nil || volume.VsphereVolume != nil
}

// hasSecretRef reports whether the volume names a secret.
func hasSecretRef(volume *corev1.Volume) bool {
	switch {
	case volume.CephFS != nil:
		return hasName(volume.CephFS.SecretRef)
	case volume.Cinder != nil:
		return hasName(volume.Cinder.SecretRef)
	case volume.FlexVolume != nil:
		return hasName(volume.FlexVolume.SecretRef)
	case volume.RBD != nil:
		return hasName(volume.RBD.SecretRef)
	case volume.ScaleIO != nil:
		return hasName(volume.ScaleIO.SecretRef)
	case volume.ISCSI != nil:
		return hasName(volume.ISCSI.SecretRef)
	case volume.StorageOS != nil:
		return hasName(volume.StorageOS.SecretRef)
	}
	return false
}

func hasName(ref *corev1.LocalObjectReference) bool { return ref != nil && ref.Name != "" }
