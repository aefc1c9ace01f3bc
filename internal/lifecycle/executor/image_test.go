// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
)

// recordingHolder is an executor.ImageHolder that records its calls.
type recordingHolder struct {
	s     *scene
	fails error
}

func (h recordingHolder) Ensure(_ context.Context, _ *corev1.Pod, c *corev1.Container, _ *cri.SandboxConfig) (cri.Image, error) {
	h.s.recordCall("Ensure " + c.Image)
	return critest.NewImage(c.Image, 1), h.fails
}

func (h recordingHolder) Hold(image string) func() {
	h.s.recordCall("Hold " + image)
	released := false
	return func() {
		if !released {
			h.s.recordCall("release " + image)
		}
		released = true
	}
}

// The images of a container and of its image volumes are held from before Ensure until the container is created or has failed.
func TestImagesHeldUntilContainerCreated(t *testing.T) {
	pod := podtest.Pod("a")
	pod.Spec.Containers[0].Image = "app"
	for _, name := range []string{"data", "other"} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: name},
		}})
	}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	for name, tt := range map[string]struct {
		breaks string
		fails  error
		want   []string
	}{
		"created": {want: []string{
			"Hold app", "Hold data", "Ensure app", "Ensure data", "CreateContainer main", "release app", "release data", "StartContainer",
		}},
		"not created": {breaks: "CreateContainer main", want: []string{
			"Hold app", "Hold data", "Ensure app", "Ensure data", "CreateContainer main", "release app", "release data",
		}},
		"image not available": {fails: errors.New("denied"), want: []string{
			"Hold app", "Hold data", "Ensure app", "release app", "release data",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *scene
				images := &recordingHolder{fails: tt.fails}
				s = newScene(t, pod, setting{node: func(n *executor.Node) { n.Images = images }})
				images.s = s
				if tt.breaks != "" {
					s.setFault(tt.breaks, errors.New("out of order"))
				}
				err := s.execute(t.Context(), s.startActions("main"))
				require.Equal(t, tt.breaks != "" || tt.fails != nil, err != nil)
				require.Equal(t, tt.want, filterCalls(s.calls, "Hold", "release", "Ensure", "CreateContainer", "StartContainer"))
			})
		})
	}
}

// filterCalls returns the calls with these names, without times and container IDs.
func filterCalls(calls []string, names ...string) (found []string) {
	for _, call := range calls {
		var at, op, about string
		_, _ = fmt.Sscan(call, &at, &op, &about)
		for _, name := range names {
			switch {
			case op != name:
			case name == "StartContainer":
				found = append(found, op)
			default:
				found = append(found, op+" "+about)
			}
		}
	}
	return found
}
