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

// Limits of a directory.
const (
	maxFile     = 3 << 20 // bytes of a manifest, the request limit of an API server
	maxServices = 10_000  // per namespace
)

const extension = ".yaml"

// Dir reads objects from a directory of manifests. It refuses symbolic links that lead out of the directory.
type Dir struct {
	root string
}

// NewDir returns a Dir that reads the objects below the directory root. The directory need not exist yet.
func NewDir(root string) *Dir { return &Dir{root: root} }

// ConfigMap reads the config map from the file NAMESPACE/configmaps/NAME.yaml. If the file does not exist, the error wraps
// fs.ErrNotExist.
func (d *Dir) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	o := &corev1.ConfigMap{}
	err := d.readObject(ctx, manifest{kindConfigMap, "v1", "ConfigMap", namespace, name}, o, func() error { return validateConfigMap(o) })
	return orNil(o, err)
}

// Secret reads the secret from the file NAMESPACE/secrets/NAME.yaml. If the file does not exist, the error wraps
// fs.ErrNotExist.
func (d *Dir) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	o := &corev1.Secret{}
	err := d.readObject(ctx, manifest{kindSecret, "v1", "Secret", namespace, name}, o, func() error { return validateSecret(o) })
	return orNil(o, err)
}

// Services reads all services of a namespace. If one of them cannot be read, Services returns an error, because the
// containers would start without the environment variables of this service.
func (d *Dir) Services(ctx context.Context, namespace string) ([]*corev1.Service, error) {
	names, err := d.listServices(namespace)
	if err != nil {
		dir := filepath.Join(d.root, namespace, "services")
		return nil, &Error{Kind: string(kindService), Namespace: namespace, File: dir, Err: err}
	}
	var list []*corev1.Service
	for _, name := range names {
		o := &corev1.Service{}
		err := d.readObject(ctx, manifest{kindService, "v1", "Service", namespace, name}, o, func() error { return validateService(o) })
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed since the listing
		case err != nil:
			return nil, err
		default:
			list = append(list, o)
		}
	}
	return list, nil
}

// listServices returns the names of the services of a namespace.
func (d *Dir) listServices(namespace string) ([]string, error) {
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

// manifest identifies the manifest file of one object by kind, namespace and name.
type manifest struct {
	kind            kind
	apiVersion      string
	apiKind         string
	namespace, name string // namespace is empty for a cluster-scoped object
}

// relativePath returns the path of the manifest below the root, such as default/configmaps/app.yaml or
// persistentvolumes/disk.yaml.
func (m manifest) relativePath() string {
	return path.Join(m.namespace, strings.ToLower(m.apiKind)+"s", m.name+extension)
}

// readObject decodes a manifest file into object, and then calls validate(). The error is an [*Error], which contains the
// path of the file.
func (d *Dir) readObject(ctx context.Context, file manifest, object metav1.Object, validate func() error) error {
	err := ctx.Err()
	if err == nil {
		err = file.kind.validateNames(file.namespace, file.name)
	}
	if err == nil {
		err = d.decodeManifest(file, object)
	}
	if err == nil {
		err = validate()
	}
	if err != nil {
		manifestPath := filepath.Join(d.root, filepath.FromSlash(file.relativePath()))
		return &Error{Kind: string(file.kind), Namespace: file.namespace, Name: file.name, File: manifestPath, Err: stripPath(err)}
	}
	return nil
}

func (d *Dir) decodeManifest(file manifest, object metav1.Object) error {
	data, err := d.readContent(file.relativePath())
	if err != nil {
		return err
	}
	if n := countDocuments(data); n > 1 {
		return errors.New("more than one document")
	}
	if err := checkCost(data, reflect.TypeOf(object)); err != nil {
		return file.redactError(err)
	}
	var typ metav1.TypeMeta
	if err := yaml.Unmarshal(data, &typ); err != nil {
		return file.redactError(err)
	}
	if typ.APIVersion != file.apiVersion || typ.Kind != file.apiKind {
		return fmt.Errorf("want a %s %s, got apiVersion %q and kind %q", file.apiVersion, file.apiKind, typ.APIVersion, typ.Kind)
	}
	if err := yaml.UnmarshalStrict(data, object); err != nil {
		return file.redactError(err)
	}
	if name := object.GetName(); name != file.name {
		return fmt.Errorf("metadata.name is %q, the file name requires %q", name, file.name)
	}
	if ns := object.GetNamespace(); ns != "" && ns != file.namespace {
		return fmt.Errorf("metadata.namespace is %q, the directory requires %q", ns, file.namespace)
	}
	object.SetNamespace(file.namespace)
	return nil
}

// checkCost returns an error if data is no YAML or JSON, or if decoding it into typ would take too much memory or time.
func checkCost(data []byte, typ reflect.Type) error {
	b := safeyaml.NewBudget(len(data))
	if json.Valid(data) {
		if err := b.JSON(data); err != nil {
			return err
		}
		return safeyaml.Quantities(data, typ)
	}
	if _, err := b.YAML(data); err != nil {
		return err
	}
	raw, err := yaml.YAMLToJSON(data)
	if err != nil {
		return err
	}
	return safeyaml.Quantities(raw, typ)
}

// redactError reduces the parse error of a secret to its line number, because parsers quote their input.
func (m manifest) redactError(err error) error {
	if m.kind != kindSecret {
		return err
	}
	if e, ok := errors.AsType[*safeyaml.Error](err); ok {
		return &safeyaml.Error{Line: e.Line, Err: e.Err} // contains only the path, no content
	}
	line := regexp.MustCompile(`line \d+`).FindString(err.Error())
	return errors.New(strings.TrimSuffix("not a valid manifest: "+line, ": "))
}

// readContent returns the content of the regular file with this name below the root directory.
func (d *Dir) readContent(name string) ([]byte, error) {
	root, err := os.OpenRoot(d.root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// O_NONBLOCK: opening a named pipe must not block.
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
		return nil, errors.New("not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	return data, err
}

// countDocuments returns the number of YAML documents with content. A line "---" always counts as a separator.
func countDocuments(data []byte) int {
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

// stripPath removes the path from an error of package os, because [Error] adds the path itself.
func stripPath(err error) error {
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
