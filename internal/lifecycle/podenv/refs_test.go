// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podenv_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
	"github.com/seed81659283/nodeagent/internal/podtest"
)

// fakeObjects provides objects and records the requests. If err is set, requests for existing objects fail with it.
type fakeObjects struct {
	requests []string
	err      error
}

func (s *fakeObjects) recordRequest(ctx context.Context, what, namespace, name string) error {
	s.requests = append(s.requests, what+" "+namespace+"/"+name)
	if _, ok := ctx.Deadline(); !ok {
		return errors.New("no deadline")
	}
	if name == "missing" {
		return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return s.err
}

func (s *fakeObjects) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return &corev1.ConfigMap{Data: map[string]string{"k": "config"}}, s.recordRequest(ctx, "config map", namespace, name)
}

func (s *fakeObjects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return &corev1.Secret{Data: map[string][]byte{"k": []byte("secret")}}, s.recordRequest(ctx, "secret", namespace, name)
}

func (s *fakeObjects) Services(ctx context.Context, namespace string) ([]*corev1.Service, error) {
	err := s.recordRequest(ctx, "services", namespace, "")
	return []*corev1.Service{service(namespace, "s", "10.0.0.1", corev1.ServicePort{Port: 1})}, err
}

func TestResolve(t *testing.T) {
	p := podtest.Pod(t, "", `{envFrom: [{configMapRef: {name: a}}, {secretRef: {name: missing, optional: true}}], env: [
		{name: A, valueFrom: {configMapKeyRef: {name: a, key: k}}}, {name: B, valueFrom: {secretKeyRef: {name: b, key: k}}},
		{name: C, valueFrom: {configMapKeyRef: {name: missing, key: k, optional: true}}}, {name: D, value: $(S_SERVICE_HOST)}]}`)
	p.Namespace = "shop"
	s := &fakeObjects{}
	got, err := podenv.Resolve(t.Context(), p, &p.Spec.Containers[0], s, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"config map shop/a", "secret shop/missing", "secret shop/b", "config map shop/missing", "services default/", "services shop/",
	}, s.requests, "each object is requested once")
	env := environment(t, p, podenv.Sources{References: got})
	assert.Empty(t, cmp.Diff([]cri.EnvVar{
		{Name: "k", Value: "config"}, {Name: "A", Value: "config"}, {Name: "B", Value: "secret"}, {Name: "D", Value: "10.0.0.1"},
	}, env[:4]))

	p.Spec.EnableServiceLinks, s.requests = new(bool), nil
	_, err = podenv.Resolve(t.Context(), p, &corev1.Container{Name: "c"}, s, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"services default/"}, s.requests, "only the services of namespace default are requested, for the API server service")

	_, err = podenv.Resolve(t.Context(), p, &p.Spec.Containers[0], nil, nil)
	assert.EqualError(t, err, `spec.containers[0].envFrom[0]: "a": this agent has no config maps and secrets: lifecycle.Options.Objects is nil`)
	p.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Optional = new(true)
	p.Spec.Containers[0].EnvFrom = p.Spec.Containers[0].EnvFrom[:1]
	p.Spec.Containers[0].Env = nil
	_, err = podenv.Resolve(t.Context(), p, &p.Spec.Containers[0], nil, nil)
	assert.NoError(t, err, "an optional reference needs no objects")
}

func TestResolveErrors(t *testing.T) {
	s := &fakeObjects{err: context.DeadlineExceeded}
	for container, want := range map[string]string{
		"envFrom: [{secretRef: {name: a, optional: true}}]": "spec.containers[0].envFrom[0]: context deadline exceeded",
		"env: [{name: A, valueFrom: {configMapKeyRef: {name: missing, key: k}}}, {name: B, valueFrom: {configMapKeyRef: {name: a, key: k}}}]": "spec.containers[0].env[1].valueFrom: context deadline exceeded",
		"name: c": "services of namespace default: context deadline exceeded",
	} {
		p := podtest.Pod(t, "", container)
		_, err := podenv.Resolve(t.Context(), p, &p.Spec.Containers[0], s, nil)
		assert.EqualError(t, err, want)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	}
}

// A static pod starts although the services are unknown, because it may be the API server itself.
func TestResolveStaticPodWithoutServices(t *testing.T) {
	p := podtest.Pod(t, "", "name: c")
	s := &fakeObjects{err: fmt.Errorf("list: %w", podenv.ErrServicesUnknown)}
	_, err := podenv.Resolve(t.Context(), p, &p.Spec.Containers[0], s, nil)
	require.ErrorIs(t, err, podenv.ErrServicesUnknown)
	p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	got, err := podenv.Resolve(t.Context(), p, &p.Spec.Containers[0], s, nil)
	require.NoError(t, err)
	assert.Empty(t, got.Services)
	s.err = errors.New("cannot be read")
	_, err = podenv.Resolve(t.Context(), p, &p.Spec.Containers[0], s, nil)
	require.EqualError(t, err, "services of namespace default: cannot be read", "other errors fail a static pod, too")
}

func TestResolveReadsEnvFiles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "volume"), 0o755))
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	write("outside", "A='host'")
	write("volume/vars", "A='one'")
	write("volume/large", string(make([]byte, 1<<20+1)))
	require.NoError(t, os.Symlink("vars", filepath.Join(dir, "volume/link")))
	require.NoError(t, os.Symlink("../outside", filepath.Join(dir, "volume/out")))
	require.NoError(t, os.Symlink("/etc/hostname", filepath.Join(dir, "volume/abs")))
	volumes := map[string]string{"v": filepath.Join(dir, "volume"), "unset": filepath.Join(dir, "unset")}

	for name, want := range map[string]string{
		"v vars":     "one",
		"v /vars":    "one",
		"v link":     "one",
		"v none":     `Not found: "none"`,
		"unset vars": `Not found: "vars"`,
		"v out":      "path escapes from parent",
		"v abs":      "path escapes from parent",
		"v large":    "file large of volume v: must be a regular file",
		"v .":        "file . of volume v: must be a regular file",
	} {
		t.Run(name, func(t *testing.T) {
			var volume, path string
			_, err := fmt.Sscan(name, &volume, &path)
			require.NoError(t, err)
			p := podtest.Pod(t, "", "env: [{name: X, valueFrom: {fileKeyRef: {volumeName: "+volume+", path: "+path+", key: A}}}]")
			refs, err := podenv.Resolve(t.Context(), p, &p.Spec.Containers[0], nil, volumes)
			var env *podenv.Environment
			if err == nil {
				env, err = podenv.New(p, &p.Spec.Containers[0], podenv.Sources{References: refs, Volumes: volumes})
			}
			if err != nil {
				assert.ErrorContains(t, err, "spec.containers[0].env[0].valueFrom")
				assert.ErrorContains(t, err, want)
				return
			}
			assert.Equal(t, []cri.EnvVar{{Name: "X", Value: want}}, env.List())
		})
	}
}
