// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
	"github.com/seed81659283/nodeagent/qos"
)

const (
	// ResolveTimeout is the time limit of [Resolve] for all objects together.
	ResolveTimeout = 10 * time.Second

	maxEnvFile  = 1 << 20 // bytes
	maxEnvFiles = 4 << 20 // bytes of all environment files of one container
)

// ErrServicesUnknown is wrapped by the error of [Objects].Services while the agent has not received the services from the API
// server.
var ErrServicesUnknown = errors.New("services have not been read yet")

// Objects provides the objects that pods refer to. Returned objects must not be modified. The error for a missing object wraps
// [fs.ErrNotExist]; any other error means that it is unknown.
type Objects interface {
	// ConfigMap returns a config map.
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	// Secret returns a secret, with all values in Data.
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Services returns all services of a namespace, in any order. If the error wraps [ErrServicesUnknown], a static pod starts
	// without service variables, because it may be the API server itself.
	Services(ctx context.Context, namespace string) ([]*corev1.Service, error)
}

// References are the objects and files that a container refers to, as read by [Resolve]. An absent object does not exist.
type References struct {
	ConfigMaps map[string]*corev1.ConfigMap // by name; all in the namespace of the pod
	Secrets    map[string]*corev1.Secret    // by name; all in the namespace of the pod
	Services   []*corev1.Service            // of the pod namespace and of namespace default
	EnvFiles   map[EnvFile][]byte           // file contents
}

// EnvFile identifies an environment file in a volume of the pod.
type EnvFile struct {
	Volume, Path string
}

// Resolve reads the config maps, secrets, services and environment files that the container refers to, in at most
// [ResolveTimeout]. volumes maps volume names to host paths. A missing object is omitted, and is an error of [New] if it is
// required. If from is nil, each required object is an error.
func Resolve(ctx context.Context, pod *corev1.Pod, container *corev1.Container, from Objects, volumes map[string]string) (References, error) {
	ctx, cancel := context.WithTimeout(ctx, ResolveTimeout)
	defer cancel()
	r := resolver{
		pod: pod, from: from, volumes: volumes,
		refs: References{
			ConfigMaps: make(map[string]*corev1.ConfigMap),
			Secrets:    make(map[string]*corev1.Secret),
			EnvFiles:   make(map[EnvFile][]byte),
		},
	}
	if err := r.resolveContainer(ctx, container, podfield.PathOf(&pod.Spec, container.Name)); err != nil {
		return References{}, err
	}
	if err := r.resolveServices(ctx); err != nil {
		return References{}, err
	}
	return r.refs, nil
}

// resolver is the state of one call of [Resolve].
type resolver struct {
	pod       *corev1.Pod
	from      Objects
	volumes   map[string]string
	refs      References
	bytesRead int64 // size of the environment files read so far
}

// resolveContainer reads the config maps, secrets and environment files that the container refers to, and stores them in r.
func (r *resolver) resolveContainer(ctx context.Context, container *corev1.Container, path *field.Path) error {
	for i, s := range container.EnvFrom {
		path, err := path.Child("envFrom").Index(i), error(nil)
		switch {
		case s.ConfigMapRef != nil:
			err = fetchObject(ctx, r, r.refs.ConfigMaps, s.ConfigMapRef.Name, s.ConfigMapRef.Optional, Objects.ConfigMap)
		case s.SecretRef != nil:
			err = fetchObject(ctx, r, r.refs.Secrets, s.SecretRef.Name, s.SecretRef.Optional, Objects.Secret)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for i, e := range container.Env {
		path, err := path.Child("env").Index(i).Child("valueFrom"), error(nil)
		switch s := optional.OrZero(e.ValueFrom); {
		case s.ConfigMapKeyRef != nil:
			err = fetchObject(ctx, r, r.refs.ConfigMaps, s.ConfigMapKeyRef.Name, s.ConfigMapKeyRef.Optional, Objects.ConfigMap)
		case s.SecretKeyRef != nil:
			err = fetchObject(ctx, r, r.refs.Secrets, s.SecretKeyRef.Name, s.SecretKeyRef.Optional, Objects.Secret)
		case s.FileKeyRef != nil:
			err = r.readEnvFile(EnvFile{s.FileKeyRef.VolumeName, s.FileKeyRef.Path})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// errNoObjects is the error of a required reference if Objects is nil.
var errNoObjects = errors.New("this agent has no config maps and secrets: lifecycle.Options.Objects is nil")

// fetchObject stores the object with this name, if it exists, in found.
func fetchObject[T any](
	ctx context.Context, r *resolver, found map[string]*T, name string, isOptional *bool,
	get func(Objects, context.Context, string, string) (*T, error),
) error {
	_, ok := found[name]
	switch {
	// All variables of a container use one version. An agent without Objects accepts only optional references.
	case ok, r.from == nil && optional.IsTrue(isOptional):
		return nil
	case r.from == nil:
		return fmt.Errorf("%q: %w", name, errNoObjects)
	}
	object, err := get(r.from, ctx, r.pod.Namespace, name)
	if err == nil {
		found[name] = object
	}
	return ignoreNotExist(err)
}

// resolveServices reads the services for the service variables of the pod.
func (r *resolver) resolveServices(ctx context.Context) error {
	if r.from == nil {
		return nil
	}
	// The namespace default has the service of the API server.
	namespaces := []string{metav1.NamespaceDefault}
	if ns := r.pod.Namespace; ns != metav1.NamespaceDefault && hasServiceLinks(r.pod) {
		namespaces = append(namespaces, ns)
	}
	for _, ns := range namespaces {
		services, err := r.from.Services(ctx, ns)
		if errors.Is(err, ErrServicesUnknown) && qos.IsStatic(r.pod) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("services of namespace %s: %w", ns, err)
		}
		r.refs.Services = append(r.refs.Services, services...)
	}
	return nil
}

// readEnvFile reads and stores the content of an environment file.
func (r *resolver) readEnvFile(f EnvFile) error {
	volume := r.volumes[f.Volume]
	if _, ok := r.refs.EnvFiles[f]; ok || volume == "" {
		return nil
	}
	// Containers may have changed the volume: O_NONBLOCK for a named pipe, and no symbolic link out of the volume.
	root, err := os.OpenRoot(volume)
	if err != nil {
		return ignoreNotExist(err)
	}
	defer root.Close()
	file, err := root.OpenFile(cmp.Or(strings.TrimLeft(f.Path, "/"), "."), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ignoreNotExist(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxEnvFile {
		return fmt.Errorf("file %s of volume %s: must be a regular file of at most %d bytes", f.Path, f.Volume, maxEnvFile)
	}
	if r.bytesRead += info.Size(); r.bytesRead > maxEnvFiles {
		return fmt.Errorf("file %s of volume %s: want at most %d bytes in all files that the container takes variables from",
			f.Path, f.Volume, maxEnvFiles)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxEnvFile))
	r.refs.EnvFiles[f] = data
	return err
}

// ignoreNotExist returns nil if err wraps [fs.ErrNotExist], and err otherwise.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
