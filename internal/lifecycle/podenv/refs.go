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
	// ResolveTimeout is how long [Resolve] waits for all objects together.
	ResolveTimeout = 10 * time.Second

	maxEnvFile  = 1 << 20 // bytes
	maxEnvFiles = 4 << 20 // bytes of all files that one container takes variables from
)

// ErrServicesUnknown is wrapped by the error of [Objects].Services as long as no API server has been heard of them.
var ErrServicesUnknown = errors.New("services have not been read yet")

// Objects is where the objects are that pods refer to. What it returns is not changed. An object that does not exist is
// an error that wraps [fs.ErrNotExist]; any other error is that it cannot be known.
type Objects interface {
	// ConfigMap returns a config map.
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	// Secret returns a secret, with all of it in Data.
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Services returns all services of a namespace, in any order. A static pod does without them where the error wraps
	// [ErrServicesUnknown]: the API server itself may be one.
	Services(ctx context.Context, namespace string) ([]*corev1.Service, error)
}

// References is what a container takes from objects other than its pod, as it was at one moment. What is not in it does
// not exist.
type References struct {
	ConfigMaps map[string]*corev1.ConfigMap // by name; all are of the pod's namespace
	Secrets    map[string]*corev1.Secret    // likewise
	Services   []*corev1.Service            // of the pod's namespace and of the default one
	EnvFiles   map[EnvFile][]byte           // contents
}

// EnvFile is a file of variables in a volume of the pod.
type EnvFile struct {
	Volume, Path string
}

// Resolve collects what a container refers to: objects, services and files in the volumes of its pod, whose paths on the
// host are given by name. It is the one function of the package that waits: after [ResolveTimeout] it gives up. What does
// not exist is left out, so that [New] says which field asks for it, or does without; what cannot be read is an error that
// names the field. Nil objects are none at all: a reference that is not optional is an error that says so.
func Resolve(ctx context.Context, pod *corev1.Pod, c *corev1.Container, from Objects, volumes map[string]string) (References, error) {
	ctx, cancel := context.WithTimeout(ctx, ResolveTimeout)
	defer cancel()
	r := resolver{
		pod: pod, from: from, volumes: volumes,
		found: References{
			ConfigMaps: make(map[string]*corev1.ConfigMap),
			Secrets:    make(map[string]*corev1.Secret),
			EnvFiles:   make(map[EnvFile][]byte),
		},
	}
	if err := r.container(ctx, c, podfield.PathOf(&pod.Spec, c.Name)); err != nil {
		return References{}, err
	}
	if err := r.services(ctx); err != nil {
		return References{}, err
	}
	return r.found, nil
}

// resolver is one call of Resolve.
type resolver struct {
	pod     *corev1.Pod
	from    Objects
	volumes map[string]string
	found   References
	read    int64 // bytes of files
}

func (r *resolver) container(ctx context.Context, c *corev1.Container, path *field.Path) error {
	for i, s := range c.EnvFrom {
		path, err := path.Child("envFrom").Index(i), error(nil)
		switch {
		case s.ConfigMapRef != nil:
			err = fetch(ctx, r, r.found.ConfigMaps, s.ConfigMapRef.Name, s.ConfigMapRef.Optional, Objects.ConfigMap)
		case s.SecretRef != nil:
			err = fetch(ctx, r, r.found.Secrets, s.SecretRef.Name, s.SecretRef.Optional, Objects.Secret)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for i, e := range c.Env {
		path, err := path.Child("env").Index(i).Child("valueFrom"), error(nil)
		switch s := optional.OrZero(e.ValueFrom); {
		case s.ConfigMapKeyRef != nil:
			err = fetch(ctx, r, r.found.ConfigMaps, s.ConfigMapKeyRef.Name, s.ConfigMapKeyRef.Optional, Objects.ConfigMap)
		case s.SecretKeyRef != nil:
			err = fetch(ctx, r, r.found.Secrets, s.SecretKeyRef.Name, s.SecretKeyRef.Optional, Objects.Secret)
		case s.FileKeyRef != nil:
			err = r.file(EnvFile{s.FileKeyRef.VolumeName, s.FileKeyRef.Path})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// errNoObjects is the error of a reference where no source of objects was given.
var errNoObjects = errors.New("this agent has no config maps and secrets: lifecycle.Options.Objects is nil")

// fetch gets an object once, however often the container refers to it: all its variables see the same version.
func fetch[T any](
	ctx context.Context, r *resolver, found map[string]*T, name string, ifMissing *bool,
	get func(Objects, context.Context, string, string) (*T, error),
) error {
	_, ok := found[name]
	switch {
	case ok, r.from == nil && optional.IsTrue(ifMissing):
		return nil
	case r.from == nil:
		return fmt.Errorf("%q: %w", name, errNoObjects)
	}
	object, err := get(r.from, ctx, r.pod.Namespace, name)
	if err == nil {
		found[name] = object
	}
	return unlessMissing(err)
}

// services gets what serviceEnv picks from.
func (r *resolver) services(ctx context.Context) error {
	if r.from == nil {
		return nil
	}
	namespaces := []string{metav1.NamespaceDefault}
	if ns := r.pod.Namespace; ns != metav1.NamespaceDefault && linked(r.pod) {
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
		r.found.Services = append(r.found.Services, services...)
	}
	return nil
}

// file reads a file of variables. The volume belongs to the containers of the pod: a link in it must not lead out of
// it, and what is not a plain file must not make anyone wait.
func (r *resolver) file(f EnvFile) error {
	volume := r.volumes[f.Volume]
	if _, ok := r.found.EnvFiles[f]; ok || volume == "" {
		return nil
	}
	root, err := os.OpenRoot(volume)
	if err != nil {
		return unlessMissing(err)
	}
	defer root.Close()
	file, err := root.OpenFile(cmp.Or(strings.TrimLeft(f.Path, "/"), "."), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return unlessMissing(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxEnvFile {
		return fmt.Errorf("file %s of volume %s: want a plain file of at most %d bytes", f.Path, f.Volume, maxEnvFile)
	}
	if r.read += info.Size(); r.read > maxEnvFiles {
		return fmt.Errorf("file %s of volume %s: want at most %d bytes in all files that the container takes variables from",
			f.Path, f.Volume, maxEnvFiles)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxEnvFile))
	r.found.EnvFiles[f] = data
	return err
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
