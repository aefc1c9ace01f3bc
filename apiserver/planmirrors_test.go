// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
)

// staticPod returns a pod as package source creates it from a manifest.
func staticPod(name, hash string) *corev1.Pod {
	pod := podtest.Pod(name)
	pod.UID, pod.Spec.NodeName = types.UID(hash), "n1"
	pod.Annotations = map[string]string{
		"kubernetes.io/config.hash": hash, "kubernetes.io/config.source": "file", "kubernetes.io/config.seen": "2026-05-04T03:02:01Z", "own": "value",
	}
	pod.Labels = map[string]string{"app": name}
	pod.Status.Phase = corev1.PodPending
	return pod
}

// mirrorPod returns a mirror pod as the API server returns it.
func mirrorPod(name, hash, uid string) *corev1.Pod {
	pod := newPod(name, uid, "")
	pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: hash}
	return pod
}

func newNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}
}

// formatActions describes actions as text.
func formatActions(actions []apiserver.MirrorAction) string {
	var words []string
	for _, a := range actions {
		word := a.Name + ":"
		if a.Delete != nil {
			word += " delete " + string(a.Delete.UID)
		}
		if a.Create != nil {
			word += " create " + a.Create.Annotations[corev1.MirrorPodAnnotationKey]
		}
		if a.Err != nil {
			word += " (" + a.Err.Error() + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, "; ")
}

func TestPlanMirrors(t *testing.T) {
	web := staticPod("web", "h1")
	deleted := mirrorPod("web", "h1", "m1")
	deleted.DeletionTimestamp = stamp()
	withToken := staticPod("token", "h2")
	withToken.Spec.ServiceAccountName = "default"
	leaving := newNode()
	leaving.DeletionTimestamp = stamp()
	of := func(pods ...*corev1.Pod) []*corev1.Pod { return pods }
	all := apiserver.MirrorInput{Node: newNode(), SourcesComplete: true}
	unadmitted := apiserver.MirrorInput{Node: newNode(), SourcesComplete: true, Admitted: func(*corev1.Pod) bool { return false }}
	for name, c := range map[string]struct {
		static, mirrors []*corev1.Pod
		facts           apiserver.MirrorInput
		want            string
	}{
		"none yet":                 {of(web), nil, all, "web: create h1"},
		"mirror is up to date":     {of(web), of(mirrorPod("web", "h1", "m1")), all, ""},
		"edited":                   {of(web), of(mirrorPod("web", "h0", "m1")), all, "web: delete m1 create h1"},
		"being deleted":            {of(web), of(deleted), all, "web: delete m1 create h1"},
		"orphan":                   {nil, of(mirrorPod("web", "h1", "m1")), all, "web: delete m1"},
		"orphan with another name": {of(web), of(mirrorPod("web", "h1", "m1"), mirrorPod("db", "h1", "m2")), all, "db: delete m2"},
		"not all sources reported": {nil, of(mirrorPod("web", "h1", "m1")), apiserver.MirrorInput{Node: newNode()}, ""},
		"still terminating": {nil, of(mirrorPod("web", "h1", "m1"), mirrorPod("db", "h1", "m2")), apiserver.MirrorInput{
			Node: newNode(), SourcesComplete: true, StillRunning: func(namespace, name string) bool { return namespace == "default" && name == "web" },
		}, "db: delete m2"},
		"predecessor terminating": {of(web, staticPod("db", "h2")), of(mirrorPod("web", "h0", "m1")), apiserver.MirrorInput{
			Node: newNode(), SourcesComplete: true, StillRunning: func(_, name string) bool { return name == "web" },
		}, "db: create h2"},
		"predecessor terminating, mirror being deleted": {of(web), of(deleted), apiserver.MirrorInput{
			Node: newNode(), SourcesComplete: true, StillRunning: func(string, string) bool { return true },
		}, ""},
		"not admitted":                               {of(web), nil, unadmitted, ""},
		"not admitted, mirror of a predecessor":      {of(web), of(mirrorPod("web", "h0", "m1")), unadmitted, "web: delete m1"},
		"not admitted by this agent, its own mirror": {of(web), of(mirrorPod("web", "h1", "m1")), unadmitted, ""},
		"no node": {
			of(web), nil,
			apiserver.MirrorInput{SourcesComplete: true},
			"web: (mirror of pod default/web: the node is not registered, or is being deleted)",
		},
		"node without a UID": {
			of(web), nil,
			apiserver.MirrorInput{Node: &corev1.Node{}},
			"web: (mirror of pod default/web: the node is not registered, or is being deleted)",
		},
		"node being deleted, and edited": {
			of(web), of(mirrorPod("web", "h0", "m1")),
			apiserver.MirrorInput{Node: leaving},
			"web: delete m1 (mirror of pod default/web: the node is not registered, or is being deleted)",
		},
		"name taken": {
			of(web), nil,
			apiserver.MirrorInput{Node: newNode(), NameTaken: func(_, name string) bool { return name == "web" }},
			"web: (mirror of pod default/web: a pod that is no mirror pod has its name)",
		},
		"two static pods of one name": {of(web, staticPod("web", "h2")), of(mirrorPod("web", "h1", "m1")), all, ""},
		"references": {
			of(withToken), nil, all,
			"token: (pod default/token cannot have a mirror: spec.serviceAccountName: Forbidden: mirror pods may not reference service accounts)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, formatActions(apiserver.PlanMirrors(c.static, c.mirrors, c.facts)))
		})
	}
}

// A mirror pod equals its static pod, is owned by the node, and has no fields that the API server sets.
func TestNewMirrorCopiesStaticPod(t *testing.T) {
	web := staticPod("web", "h1")
	web.Finalizers = []string{"example.com/never"}
	web.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j"}}
	web.GenerateName, web.ResourceVersion = "web-", "7"
	web.Status.Message = "from elsewhere"
	before := web.DeepCopy()
	actions := apiserver.PlanMirrors([]*corev1.Pod{web}, nil, apiserver.MirrorInput{Node: newNode()})
	require.Len(t, actions, 1)
	assert.Equal(t, before, web)
	mirror := actions[0].Create
	assert.Equal(t, web.Spec, mirror.Spec)
	assert.Equal(t, corev1.PodStatus{}, mirror.Status)
	assert.Equal(t, metav1.ObjectMeta{
		Name: "web", Namespace: "default", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{
			"kubernetes.io/config.hash": "h1", "kubernetes.io/config.mirror": "h1", "kubernetes.io/config.source": "file",
			"kubernetes.io/config.seen": "2026-05-04T03:02:01Z", "own": "value",
		},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "node-uid", Controller: new(true)}},
	}, mirror.ObjectMeta)
}

// A mirror pod that the API server would reject is not planned.
func TestPodsWithReferencesHaveNoMirror(t *testing.T) {
	name := corev1.LocalObjectReference{Name: "x"}
	volume := func(source corev1.VolumeSource) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
		}
	}
	env := func(from *corev1.EnvVarSource) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "E", ValueFrom: from}} }
	}
	projected := func(p corev1.VolumeProjection) func(*corev1.Pod) {
		return volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{p}}})
	}
	for what, c := range map[string]struct {
		change func(*corev1.Pod)
		field  string // empty: the pod can have a mirror
	}{
		"service account": {func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = "x" }, "spec.serviceAccountName"},
		"pull secret":     {func(pod *corev1.Pod) { pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{name} }, "spec.imagePullSecrets"},
		"claim":           {func(pod *corev1.Pod) { pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "x"}} }, "spec.resourceClaims"},
		"env secret":      {env(&corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: name}}), "spec.containers[0].env[0].valueFrom.secretKeyRef"},
		"env config map":  {env(&corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: name}}), "spec.containers[0].env[0].valueFrom.configMapKeyRef"},
		"env field":       {env(&corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}), ""},
		"envFrom": {func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: name}}}}}
		}, "spec.initContainers[0].envFrom[0].secretRef"},
		"empty dir":        {volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), ""},
		"NFS":              {volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}), ""},
		"secret volume":    {volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}), "spec.volumes[0]"},
		"config map":       {volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}), "spec.volumes[0]"},
		"volume claim":     {volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}), "spec.volumes[0]"},
		"ephemeral":        {volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}), "spec.volumes[0]"},
		"CSI":              {volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}), "spec.volumes[0]"},
		"iSCSI":            {volume(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}), ""},
		"iSCSI secret":     {volume(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: &name}}), "spec.volumes[0]"},
		"unknown volume":   {volume(corev1.VolumeSource{}), "spec.volumes[0]"},
		"downward API":     {projected(corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{}}), ""},
		"projected token":  {projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}), "spec.volumes[0].projected.sources[0]"},
		"projected bundle": {projected(corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}), "spec.volumes[0].projected.sources[0]"},
	} {
		pod := staticPod("web", "h")
		c.change(pod)
		actions := apiserver.PlanMirrors([]*corev1.Pod{pod}, nil, apiserver.MirrorInput{Node: newNode()})
		require.Len(t, actions, 1, what)
		if c.field == "" {
			assert.NoError(t, actions[0].Err, what)
			assert.NotNil(t, actions[0].Create, what)
			continue
		}
		assert.Nil(t, actions[0].Create, what)
		assert.ErrorContains(t, actions[0].Err, c.field+": Forbidden", what)
	}
}

// FuzzPlanMirrors checks that applying the plan converges to one mirror pod per static pod.
func FuzzPlanMirrors(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		var static, mirrors []*corev1.Pod
		for i := range rnd.IntN(5) {
			static = append(static, staticPod(fmt.Sprint("p", i), fmt.Sprint("h", rnd.IntN(3))))
		}
		for i := range rnd.IntN(6) {
			mirror := mirrorPod(fmt.Sprint("p", i), fmt.Sprint("h", rnd.IntN(3)), fmt.Sprint("m", i))
			if rnd.IntN(4) == 0 {
				mirror.DeletionTimestamp = stamp()
			}
			mirrors = append(mirrors, mirror)
		}
		facts := apiserver.MirrorInput{Node: newNode(), SourcesComplete: true}
		for i, action := range apiserver.PlanMirrors(static, mirrors, facts) {
			require.NoError(t, action.Err)
			mirrors = applyActions(mirrors, action, i)
		}
		require.Empty(t, formatActions(apiserver.PlanMirrors(static, mirrors, facts)))
		require.Len(t, mirrors, len(static))
	})
}

// applyActions returns the mirror pods after an action.
func applyActions(mirrors []*corev1.Pod, action apiserver.MirrorAction, i int) (next []*corev1.Pod) {
	for _, mirror := range mirrors {
		if action.Delete == nil || mirror.UID != action.Delete.UID {
			next = append(next, mirror)
		}
	}
	if action.Create != nil {
		created := action.Create.DeepCopy()
		created.UID = types.UID(fmt.Sprint("new", i))
		next = append(next, created)
	}
	return next
}
