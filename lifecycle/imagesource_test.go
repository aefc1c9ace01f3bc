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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// secrets is an Objects with secrets by name, or with the error of reading a secret.
type secrets struct {
	lifecycle.Objects
	found map[string]*corev1.Secret
	fails map[string]error
}

func (s secrets) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return s.found[name], s.fails[name]
}

// loginSecret returns a secret of a type with a login for the registry r.io.
func loginSecret(kind corev1.SecretType, key, data string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "login", Namespace: "default", UID: "s1"}, Type: kind, Data: map[string][]byte{key: []byte(data)},
	}
}

// Images pulls with the secrets of the pod. The error of a failed pull names a secret that cannot be read.
func TestImagesEnsurePullsWithSecrets(t *testing.T) {
	const config = `{"auths":{"r.io":{"username":"me","password":"hunter2"}}}`
	missing := errors.New("no network")
	tests := map[string]struct {
		objects lifecycle.Objects
		names   []string
		users   []string // users of the pull attempts; empty: anonymous
		want    string
	}{
		"no secret": {users: []string{""}, want: "ErrImagePull: denied"},
		"a secret": {
			objects: secrets{found: map[string]*corev1.Secret{"login": loginSecret(corev1.SecretTypeDockerConfigJson, ".dockerconfigjson", config)}},
			names:   []string{"login"}, users: []string{"me"}, want: "ErrImagePull: denied",
		},
		"secret in the dockercfg format": {
			objects: secrets{found: map[string]*corev1.Secret{"login": loginSecret(corev1.SecretTypeDockercfg, ".dockercfg", `{"r.io":{"username":"old","password":"x"}}`)}},
			names:   []string{"login"}, users: []string{"old"}, want: "ErrImagePull: denied",
		},
		"secret of another type": {
			objects: secrets{found: map[string]*corev1.Secret{"login": loginSecret(corev1.SecretTypeOpaque, ".dockerconfigjson", config)}},
			names:   []string{"login"}, users: []string{""}, want: "ErrImagePull: denied",
		},
		"secret that cannot be read": {
			objects: secrets{fails: map[string]error{"login": missing}},
			names:   []string{"", "login"}, users: []string{""}, want: "ErrImagePull: denied (not tried: no network)",
		},
		"secrets on a node without objects": {names: []string{"login"}, users: []string{""}, want: "ErrImagePull: denied"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var users []string
				rt := critest.New(critest.Options{Images: []cri.Image{}, Pull: func(_ context.Context, _ cri.ImageSpec, auth *cri.Auth) (cri.Image, error) {
					user := ""
					if auth != nil {
						user = auth.Username
					}
					users = append(users, user)
					return cri.Image{}, errors.New("denied")
				}})
				puller, err := images.New(rt, rt, images.Options{})
				require.NoError(t, err)
				pod := podtest.Pod("a")
				c := &pod.Spec.Containers[0]
				c.Image, c.ImagePullPolicy = "r.io/app:1", corev1.PullAlways
				for _, name := range tt.names {
					pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
				}
				source := lifecycle.Images{Puller: puller, Objects: tt.objects}
				_, err = source.Ensure(t.Context(), pod, c, &cri.SandboxConfig{})
				require.EqualError(t, err, tt.want)
				require.Equal(t, tt.users, users)
				failed, ok := errors.AsType[*podstatus.StartError](err)
				require.True(t, ok)
				require.Zero(t, failed.Retry, "first failure has no retry time, so that the status shows the back-off next")

				_, err = source.Ensure(t.Context(), pod, c, &cri.SandboxConfig{})
				failed, ok = errors.AsType[*podstatus.StartError](err)
				require.True(t, ok)
				require.Equal(t, images.ReasonImagePullBackOff, failed.Reason)
				require.WithinDuration(t, time.Now().Add(10*time.Second), failed.Retry, time.Second)
				require.Equal(t, tt.users, users, "no pull during the back-off")
			})
		})
	}
}
