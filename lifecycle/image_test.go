// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
)

// unreachable is a source of objects that cannot be asked for secrets.
type unreachable struct{ objects.Memory }

func (*unreachable) Secret(context.Context, string, string) (*corev1.Secret, error) {
	return nil, errors.New("no network")
}

// A node that is cut off runs the images that it has, whatever became of the pull secrets.
func TestSecretsThatCannotBeHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Images: []cri.Image{{ID: "sha256:1", RepoTags: []string{"present:1"}, Size: 1}}})
		n := boot(t, rt, rt, lifecycle.Options{Objects: &unreachable{}})
		present, absent := testPod("present"), testPod("absent")
		for image, pod := range map[string]*corev1.Pod{"present:1": present, "absent:1": absent} {
			pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = image, corev1.PullNever
			pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{}, {Name: "login"}}
		}
		n.set(present, absent)
		time.Sleep(time.Second)
		n.requireStatus("present", "Running, main: ready")
		n.requireStatus("absent", "Pending, main: ErrImageNeverPull")
		require.Equal(t, `Container image "absent:1" is not present with pull policy of Never (not tried: no network)`,
			n.status("absent").ContainerStatuses[0].State.Waiting.Message)
	})
}
