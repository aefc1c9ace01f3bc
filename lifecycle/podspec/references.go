// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
)

// Objects provides the config maps, secrets and services that pods refer to. lifecycle.Objects has the same methods, and
// describes their errors.
type Objects interface {
	// ConfigMap returns a config map.
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	// Secret returns a secret, with all its content in Data.
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Services returns all services of a namespace, in any order.
	Services(ctx context.Context, namespace string) ([]*corev1.Service, error)
}

// References has the objects that the environment of one container refers to, as read by [ResolveReferences]. An object that is
// missing in it did not exist.
type References struct {
	ConfigMaps map[string]*corev1.ConfigMap // by name, in the namespace of the pod
	Secrets    map[string]*corev1.Secret    // by name, in the namespace of the pod
	Services   []*corev1.Service            // of the namespace of the pod and of the default namespace

	envFiles map[podenv.EnvFile][]byte // contents of the env files in the volumes of the pod
}

// ResolveReferences reads the config maps, secrets, services and env files to which the environment of the container refers. It
// takes at most 10 s.
//
// An object that does not exist is missing in the result: [Container] returns an error if it is required. The error of
// ResolveReferences names the field whose object cannot be read. If objects is nil, each required reference is an error.
func ResolveReferences(ctx context.Context, pod *corev1.Pod, container *corev1.Container, objects Objects, volumes map[string]Volume) (References, error) {
	r, err := podenv.Resolve(ctx, pod, container, objects, hostPaths(volumes))
	return References{ConfigMaps: r.ConfigMaps, Secrets: r.Secrets, Services: r.Services, envFiles: r.EnvFiles}, err
}

// envReferences converts r for package podenv.
func (r References) envReferences() podenv.References {
	return podenv.References{ConfigMaps: r.ConfigMaps, Secrets: r.Secrets, Services: r.Services, EnvFiles: r.envFiles}
}
