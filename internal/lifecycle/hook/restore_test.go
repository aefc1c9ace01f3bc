// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// A container of an orphaned pod can be stopped with the data in its annotations, also if a kubelet has written them.
func TestRestore(t *testing.T) {
	thirty, five := int64(30), int64(5)
	want := &corev1.Container{
		Name:  "app",
		Ports: []corev1.ContainerPort{{Name: "admin", ContainerPort: 8081, Protocol: corev1.ProtocolTCP}},
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: "/stop", Port: intstr.FromString("admin"), Scheme: corev1.URISchemeHTTPS,
			HTTPHeaders: []corev1.HTTPHeader{{Name: "X-A", Value: `"1"`}},
		}}},
	}
	wantPod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u1", Name: "web", Namespace: "shop", DeletionGracePeriodSeconds: &five},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &thirty},
	}
	pod := wantPod.DeepCopy()
	pod.Spec.Containers = []corev1.Container{*want}
	config, err := podspec.Container(pod, &pod.Spec.Containers[0], podspec.Launch{}, podspec.Options{})
	require.NoError(t, err)
	assert.Equal(t, `{"httpGet":{"path":"/stop","port":"admin","scheme":"HTTPS","httpHeaders":[{"name":"X-A","value":"\"1\""}]}}`,
		config.Annotations[podspec.AnnotationPreStopHandler])

	got, err := hook.Restore(&cri.Container{
		ID: "c1", PodUID: "u1", Name: config.Name, Labels: config.Labels, Annotations: config.Annotations,
	})
	require.NoError(t, err)
	assert.Equal(t, hook.Restored{Pod: wantPod, Container: want}, got)
}

// All annotations may be missing.
func TestRestoreWithoutAnnotations(t *testing.T) {
	restored, err := hook.Restore(&cri.Container{ID: "c1", Name: "app", PodUID: "u1", Annotations: map[string]string{
		podspec.AnnotationPreStopHandler: "null", podspec.AnnotationPorts: "null",
	}})
	require.NoError(t, err)
	assert.Equal(t, &corev1.Container{Name: "app"}, restored.Container)
	assert.Equal(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}, restored.Pod)
}

// Invalid annotations are ignored, and the error names them.
func TestRestoreLeavesOutInvalidAnnotations(t *testing.T) {
	thirty := int64(30)
	restored, err := hook.Restore(&cri.Container{ID: "c1", Name: "app", Annotations: map[string]string{
		podspec.AnnotationTerminationGracePeriod: "30",
		podspec.AnnotationDeletionGracePeriod:    "soon",
		podspec.AnnotationPorts:                  `[{"containerPort":1},{"containerPort":"x"}]`,
		podspec.AnnotationPreStopHandler:         `{"exec":`,
	}})
	assert.Equal(t, &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &thirty}}, restored.Pod)
	assert.Equal(t, &corev1.Container{Name: "app"}, restored.Container)
	for _, name := range []string{podspec.AnnotationDeletionGracePeriod, podspec.AnnotationPorts, podspec.AnnotationPreStopHandler} {
		assert.ErrorContains(t, err, "container c1: annotation "+name+": ")
	}
	assert.ErrorContains(t, err, `parsing "soon"`)
}

// Annotations are untrusted. With any content, the container can be stopped, and restored data can be written again.
func FuzzRestore(f *testing.F) {
	f.Add(`{"exec":{"command":["a"]}}`, "30")
	f.Add(`{"httpGet":{"port":"admin"},"sleep":{"seconds":-1}}`, "-1")
	f.Add(`{"exec":`, "")
	f.Add(`{"eXeC":{"CommAnd":[]}}`, "0")
	f.Fuzz(func(t *testing.T, handler, seconds string) {
		have := &cri.Container{ID: "c1", Name: "app", Annotations: map[string]string{
			podspec.AnnotationPreStopHandler: handler, podspec.AnnotationTerminationGracePeriod: seconds,
		}}
		restored, err := hook.Restore(have)
		c := restored.Container
		if err != nil {
			assert.True(t, c.Lifecycle == nil || restored.Pod.Spec.TerminationGracePeriodSeconds == nil)
		}
		if c.Lifecycle == nil {
			return
		}
		written, err := json.Marshal(c.Lifecycle.PreStop)
		require.NoError(t, err)
		have.Annotations[podspec.AnnotationPreStopHandler] = string(written)
		restored, _ = hook.Restore(have)
		again, err := json.Marshal(restored.Container.Lifecycle.PreStop)
		require.NoError(t, err)
		assert.Equal(t, string(written), string(again))
	})
}
