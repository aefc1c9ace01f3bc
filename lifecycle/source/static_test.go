// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/source"
)

// newWebPod returns a pod as a program builds it.
func newWebPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx:1"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// Static sets the UID and the defaults that Parse sets for a manifest.
func TestStaticEqualsParsedManifest(t *testing.T) {
	origin := source.Origin{Source: source.File, Location: "/m/web.yaml", NodeName: "n1", Seen: time.Unix(1e9, 0)}
	before := newWebPod()
	pod, err := source.Static(before, origin)
	require.NoError(t, err)
	assert.Equal(t, newWebPod(), before, "Static does not modify the caller's pod")

	parsed := parseOne(t, web, origin)
	pod.UID, pod.Annotations[source.AnnotationHash] = parsed.UID, string(parsed.UID)
	assert.Equal(t, parsed, pod)
}

// A restarted program must find its pods, and a changed pod must be replaced. The UID decides both.
func TestStaticUID(t *testing.T) {
	uidOf := func(change func(*corev1.Pod, *source.Origin)) string {
		pod, o := newWebPod(), source.Origin{}
		change(pod, &o)
		pod, err := source.Static(pod, o)
		require.NoError(t, err)
		assert.Equal(t, string(pod.UID), pod.Annotations[source.AnnotationHash])
		return string(pod.UID)
	}
	uid := uidOf(func(*corev1.Pod, *source.Origin) {})
	// If the UID changed, an upgrade would replace every pod of every node.
	assert.Equal(t, "b21734a203ae86941e1f74f4999f19ad", uid)
	assert.Equal(t, uid, uidOf(func(p *corev1.Pod, o *source.Origin) {
		p.Status, o.Seen = corev1.PodStatus{Message: "x"}, time.Unix(1e9, 0)
	}), "creation time and status do not change the UID")
	assert.NotEqual(t, uid, uidOf(func(p *corev1.Pod, _ *source.Origin) { p.Spec.Containers[0].Image = "nginx:2" }))
	assert.NotEqual(t, uid, uidOf(func(p *corev1.Pod, _ *source.Origin) { p.Labels = map[string]string{"a": "b"} }))
	assert.NotEqual(t, uid, uidOf(func(_ *corev1.Pod, o *source.Origin) { o.Location = "x" }))
	assert.Equal(t, "abc-1", uidOf(func(p *corev1.Pod, _ *source.Origin) { p.UID = "abc-1" }))

	pod, err := source.Static(newWebPod(), source.Origin{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{source.AnnotationHash: uid}, pod.Annotations, "without an origin there are no annotations of source and time")
}

// Static returns all invalid fields of a pod.
func TestStaticErrors(t *testing.T) {
	_, err := source.Static(nil, source.Origin{})
	require.EqualError(t, err, "make static pod: pod is nil")
	_, err = source.Static(&corev1.Pod{}, source.Origin{})
	require.EqualError(t, err, "make static pod: metadata.name: required")

	pod := newWebPod()
	pod.Spec.Containers[0].Image, pod.Spec.RestartPolicy = "", "Sometimes"
	_, err = source.Static(pod, source.Origin{})
	require.ErrorContains(t, err, "make static pod /web: [")
	require.ErrorContains(t, err, "spec.containers[0].image: Required value")
	require.ErrorContains(t, err, "spec.restartPolicy: Unsupported value: \"Sometimes\"")

	pod = newWebPod()
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	_, err = source.Static(pod, source.Origin{})
	require.ErrorContains(t, err, "spec.imagePullSecrets: Forbidden: static pods may not reference secrets")
	_, err = source.Static(pod, source.Origin{AllowObjects: true})
	require.NoError(t, err)
}

// With AllowObjects static pods may mount objects, but no volumes that require an API server.
func TestStaticPodVolumesWithAllowObjects(t *testing.T) {
	for name, c := range map[string]struct{ volume, without, with string }{
		"emptyDir":    {"emptyDir: {}", "", ""},
		"hostPath":    {"hostPath: {path: /x}", "", ""},
		"downwardAPI": {"downwardAPI: {items: [{path: f, fieldRef: {fieldPath: metadata.name}}]}", "", ""},
		"configMap":   {"configMap: {name: c}", "static pods may not reference config maps", ""},
		"secret":      {"secret: {secretName: s}", "static pods may not reference secrets", ""},
		"projected":   {"projected: {sources: [{configMap: {name: c}}, {secret: {name: s}}, {downwardAPI: {}}]}", "static pods may not reference objects of the API server", ""},
		"token":       {"projected: {sources: [{clusterTrustBundle: {name: b, path: p}}]}", "static pods may not reference objects of the API server", "static pods may not reference objects of the API server"},
		"claim":       {"persistentVolumeClaim: {claimName: c}", "static pods may not reference persistent volume claims", ""},
		"ephemeral":   {"ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}}", "static pods may not reference persistent volume claims", ""},
		"CSI":         {"csi: {driver: d}", "static pods may not reference CSI drivers", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, objects := range []bool{false, true} {
				want := c.without
				if objects {
					want = c.with
				}
				pod := podtest.Pod(t, "volumes: [{name: v, "+c.volume+"}]")
				_, err := source.Static(pod, source.Origin{AllowObjects: objects})
				if want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, want)
				}
			}
		})
	}
}
