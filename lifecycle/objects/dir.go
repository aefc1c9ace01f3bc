// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/internal/safeyaml"
)

// The limits of a directory.
const (
	maxFile     = 3 << 20 // bytes of a manifest, what an API server takes in one request
	maxServices = 10_000  // of a namespace
)

const extension = ".yaml"

// Dir is a directory of objects. Links in it have to stay in it.
type Dir struct {
	root string
}

// NewDir returns the objects in a directory, which need not exist yet.
func NewDir(root string) *Dir { return &Dir{root: root} }

// ConfigMap reads a config map.
func (d *Dir) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	o := &corev1.ConfigMap{}
	err := d.read(ctx, manifest{kindConfigMap, "v1", "ConfigMap", namespace, name}, o, func() error { return validateConfigMap(o) })
	return orNil(o, err)
}

// Secret reads a secret.
func (d *Dir) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	o := &corev1.Secret{}
	err := d.read(ctx, manifest{kindSecret, "v1", "Secret", namespace, name}, o, func() error { return validateSecret(o) })
	return orNil(o, err)
}

// Services reads the services of a namespace. One that cannot be read is an error, as without it pods would look for
// its address in vain.
func (d *Dir) Services(ctx context.Context, namespace string) ([]*corev1.Service, error) {
	names, err := d.services(namespace)
	if err != nil {
		dir := filepath.Join(d.root, namespace, "services")
		return nil, &Error{Kind: string(kindService), Namespace: namespace, File: dir, Err: err}
	}
	var list []*corev1.Service
	for _, name := range names {
		o := &corev1.Service{}
		err := d.read(ctx, manifest{kindService, "v1", "Service", namespace, name}, o, func() error { return validateService(o) })
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed in between
		case err != nil:
			return nil, err
		default:
			list = append(list, o)
		}
	}
	return list, nil
}

// services returns the names of the services of a namespace.
func (d *Dir) services(namespace string) ([]string, error) {
	if err := validateNames(namespace, "x"); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(d.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dir, err := root.Open(path.Join(namespace, "services"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(maxServices + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) > maxServices {
		return nil, fmt.Errorf("more than %d files", maxServices)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), extension); ok && !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	return names, nil
}

// manifest is a file that holds one object.
type manifest struct {
	kind            kind
	apiVersion      string
	apiKind         string
	namespace, name string // no namespace: the object is of the whole cluster
}

// path returns where the manifest is below the root, such as default/configmaps/app.yaml or persistentvolumes/disk.yaml.
func (m manifest) path() string {
	return path.Join(m.namespace, strings.ToLower(m.apiKind)+"s", m.name+extension)
}

// read reads an object and validates it.
func (d *Dir) read(ctx context.Context, m manifest, into metav1.Object, validate func() error) error {
	err := ctx.Err()
	if err == nil {
		err = m.kind.validateNames(m.namespace, m.name)
	}
	if err == nil {
		err = d.decode(m, into)
	}
	if err == nil {
		err = validate()
	}
	if err != nil {
		file := filepath.Join(d.root, filepath.FromSlash(m.path()))
		return &Error{Kind: string(m.kind), Namespace: m.namespace, Name: m.name, File: file, Err: cause(err)}
	}
	return nil
}

func (d *Dir) decode(m manifest, into metav1.Object) error {
	data, err := d.content(m.path())
	if err != nil {
		return err
	}
	if n := documents(data); n > 1 {
		return errors.New("more than one document")
	}
	if err := bound(data, reflect.TypeOf(into)); err != nil {
		return m.redact(err)
	}
	var typ metav1.TypeMeta
	if err := yaml.Unmarshal(data, &typ); err != nil {
		return m.redact(err)
	}
	if typ.APIVersion != m.apiVersion || typ.Kind != m.apiKind {
		return fmt.Errorf("want a %s %s, got apiVersion %q and kind %q", m.apiVersion, m.apiKind, typ.APIVersion, typ.Kind)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		return m.redact(err)
	}
	if name := into.GetName(); name != m.name {
		return fmt.Errorf("metadata.name is %q, the file says %q", name, m.name)
	}
	if ns := into.GetNamespace(); ns != "" && ns != m.namespace {
		return fmt.Errorf("metadata.namespace is %q, the directory says %q", ns, m.namespace)
	}
	into.SetNamespace(m.namespace)
	return nil
}

// bound returns an error where a manifest of an object of type t is not one, or where it would cost more to decode than it may.
func bound(data []byte, t reflect.Type) error {
	b := safeyaml.NewBudget(len(data))
	if json.Valid(data) {
		if err := b.JSON(data); err != nil {
			return err
		}
		return safeyaml.Quantities(data, t)
	}
	if _, err := b.YAML(data); err != nil {
		return err
	}
	raw, err := yaml.YAMLToJSON(data)
	if err != nil {
		return err
	}
	return safeyaml.Quantities(raw, t)
}

// redact leaves of the error of a parser nothing but the line, if it is about a secret: parsers quote what they read.
func (m manifest) redact(err error) error {
	if m.kind != kindSecret {
		return err
	}
	if e, ok := errors.AsType[*safeyaml.Error](err); ok {
		return &safeyaml.Error{Line: e.Line, Err: e.Err} // which has nothing of the content but the path
	}
	line := regexp.MustCompile(`line \d+`).FindString(err.Error())
	return errors.New(strings.TrimSuffix("not a valid manifest: "+line, ": "))
}

// content reads a plain file. It does not wait for a pipe to be written to.
func (d *Dir) content(name string) ([]byte, error) {
	root, err := os.OpenRoot(d.root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a plain file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	return data, err
}

// documents counts the YAML documents in a file. A line of dashes is never part of a value.
func documents(data []byte) int {
	n, content := 0, false
	for line := range bytes.Lines(data) {
		separator := bytes.HasPrefix(line, []byte("---")) && (len(line) == 3 || bytes.IndexByte([]byte(" \t\r\n"), line[3]) >= 0)
		if separator {
			content = false
			line = line[3:]
		}
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !content {
			content = true
			n++
		}
	}
	return n
}

// cause strips what the error of the object says anyway.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func orNil[T any](o *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return o, nil
}
