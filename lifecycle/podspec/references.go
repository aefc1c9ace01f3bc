// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
)

// Objects returns the config maps, secrets and services that pods refer to. Its methods are those of lifecycle.Objects, which has their contract.
type Objects interface {
	// ConfigMap returns a config map.
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	// Secret returns a secret, with all its content in Data.
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Services returns all services of a namespace, in any order.
	Services(ctx context.Context, namespace string) ([]*corev1.Service, error)
}

// References has the objects that the variables of one container refer to, at one moment. An object that it lacks does not exist.
// [ResolveReferences] reads them.
type References struct {
	ConfigMaps map[string]*corev1.ConfigMap // by name, in the namespace of the pod
	Secrets    map[string]*corev1.Secret    // by name, in the namespace of the pod
	Services   []*corev1.Service            // of the namespace of the pod and of the default namespace

	envFiles map[podenv.EnvFile][]byte // contents of the files of variables in the volumes of the pod
}

// ResolveReferences reads the objects, the services and the files in the volumes of the pod that the variables of c refer to. It waits for at most
// 10 s. An object that does not exist is left out: [Container] returns an error for a variable that requires it. An object that cannot be read is
// an error that names the field. With nil objects, a reference that is not optional is an error.
func ResolveReferences(ctx context.Context, pod *corev1.Pod, c *corev1.Container, objects Objects, volumes map[string]Volume) (References, error) {
	r, err := podenv.Resolve(ctx, pod, c, objects, hostPaths(volumes))
	return References{ConfigMaps: r.ConfigMaps, Secrets: r.Secrets, Services: r.Services, envFiles: r.EnvFiles}, err
}

// sources converts the references to those that the environment of a container is resolved with.
func (r References) envReferences() podenv.References {
	return podenv.References{ConfigMaps: r.ConfigMaps, Secrets: r.Secrets, Services: r.Services, EnvFiles: r.envFiles}
}
