// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

var (
	_ podspec.Objects = (*objects.Memory)(nil)
	_ podspec.Objects = (*objects.Dir)(nil)
)

// dir returns a Dir with one valid object of each kind, and a function that replaces one of its files.
func dir(t *testing.T) (*objects.Dir, func(name, content string)) {
	t.Helper()
	root := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file+".new", []byte(content), 0o644))
		require.NoError(t, os.Rename(file+".new", file))
	}
	put("shop/configmaps/app.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata: {level: info}\n")
	put("shop/secrets/login.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: login, namespace: shop}\ndata: {user: cm9vdA==}\nstringData: {password: x}\n")
	put("shop/services/db.yaml", `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db"}, "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}`)
	return objects.NewDir(root), put
}

func memory(t *testing.T) *objects.Memory {
	t.Helper()
	m := &objects.Memory{}
	app := &corev1.ConfigMap{Data: map[string]string{"level": "info"}}
	app.Namespace, app.Name = "shop", "app"
	login := &corev1.Secret{Data: map[string][]byte{"user": []byte("root")}, StringData: map[string]string{"password": "x"}}
	login.Namespace, login.Name = "shop", "login"
	db := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 80}}}}
	db.Namespace, db.Name = "shop", "db"
	require.NoError(t, errors.Join(m.PutConfigMap(app), m.PutSecret(login), m.PutService(db)))
	app.Data["level"] = "changed later"
	return m
}

func TestMemoryAndDirReturnEqualObjects(t *testing.T) {
	d, _ := dir(t)
	for name, from := range map[string]podspec.Objects{"memory": memory(t), "directory": d} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			app, err := from.ConfigMap(ctx, "shop", "app")
			require.NoError(t, err)
			assert.Equal(t, map[string]string{"level": "info"}, app.Data)
			assert.Equal(t, "shop", app.Namespace)
			login, err := from.Secret(ctx, "shop", "login")
			require.NoError(t, err)
			assert.Equal(t, map[string][]byte{"user": []byte("root"), "password": []byte("x")}, login.Data)
			assert.Nil(t, login.StringData)
			services, err := from.Services(ctx, "shop")
			require.NoError(t, err)
			require.Len(t, services, 1)
			assert.Equal(t, "10.0.0.1", services[0].Spec.ClusterIP)
			assert.Equal(t, "shop/db", services[0].Namespace+"/"+services[0].Name)

			_, err = from.ConfigMap(ctx, "shop", "login")
			assert.ErrorIs(t, err, fs.ErrNotExist)
			assert.ErrorContains(t, err, "read config map shop/login")
			_, err = from.Secret(ctx, "elsewhere", "login")
			assert.ErrorIs(t, err, fs.ErrNotExist)
			e, ok := errors.AsType[*objects.Error](err)
			require.True(t, ok)
			assert.Equal(t, []string{"secret", "elsewhere", "login"}, []string{e.Kind, e.Namespace, e.Name})
			services, err = from.Services(ctx, "elsewhere")
			assert.NoError(t, err)
			assert.Empty(t, services)
		})
	}
}

func TestMemoryDeletesObjects(t *testing.T) {
	m := memory(t)
	m.DeleteConfigMap("shop", "app")
	m.DeleteSecret("shop", "login")
	m.DeleteService("shop", "db")
	m.DeleteService("shop", "db")
	_, err := m.ConfigMap(t.Context(), "shop", "app")
	assert.ErrorIs(t, err, fs.ErrNotExist)
	_, err = m.Secret(t.Context(), "shop", "login")
	assert.ErrorIs(t, err, fs.ErrNotExist)
	services, err := m.Services(t.Context(), "shop")
	assert.NoError(t, err)
	assert.Empty(t, services)
}

func TestMemoryRejectsInvalidObjects(t *testing.T) {
	m := &objects.Memory{}
	assert.EqualError(t, m.PutConfigMap(&corev1.ConfigMap{}), "list config maps of namespace : namespace: a lowercase RFC 1123 label must consist of "+
		"lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for "+
		"validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')")
	o := &corev1.ConfigMap{Data: map[string]string{"../x": ""}}
	o.Namespace, o.Name = "shop", "app"
	assert.ErrorContains(t, m.PutConfigMap(o), `read config map shop/app: data: key "../x": `)
	_, err := m.ConfigMap(t.Context(), "shop", "app")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestMemoryIsConcurrent(t *testing.T) {
	m, s := &objects.Memory{}, &corev1.Service{}
	s.Namespace, s.Name = "shop", "db"
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				assert.NoError(t, m.PutService(s))
				_, err := m.Services(t.Context(), "shop")
				assert.NoError(t, err)
				m.DeleteService("shop", "db")
			}
		})
	}
	wg.Wait()
}

func TestDirDoesNotCache(t *testing.T) {
	d, put := dir(t)
	put("shop/configmaps/app.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata: {level: debug}\n")
	app, err := d.ConfigMap(t.Context(), "shop", "app")
	require.NoError(t, err)
	assert.Equal(t, "debug", app.Data["level"])
}

func TestMissingDirHasNoObjects(t *testing.T) {
	d := objects.NewDir(filepath.Join(t.TempDir(), "none"))
	_, err := d.Secret(t.Context(), "shop", "login")
	assert.ErrorIs(t, err, fs.ErrNotExist)
	services, err := d.Services(t.Context(), "shop")
	assert.NoError(t, err)
	assert.Empty(t, services)
}

func TestDirRejectsInvalidManifests(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\n"
	for want, content := range map[string]string{
		`want a v1 ConfigMap, got apiVersion "" and kind ""`:           "",
		`want a v1 ConfigMap, got apiVersion "v1" and kind "Secret"`:   "apiVersion: v1\nkind: Secret\nmetadata: {name: app}\n",
		`metadata.name is "other", the file name requires "app"`:       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n",
		`metadata.namespace is "other", the directory requires "shop"`: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app, namespace: other}\n",
		`unknown field "dta"`:                         head + "dta: {a: b}\n",
		"more than one document":                      head + "---\n" + head,
		`key "a" is in data and in binaryData`:        head + "data: {a: b}\nbinaryData: {a: Yg==}\n",
		`data: key "a b": `:                           head + "data: {'a b': b}\n",
		`binaryData: key "..": `:                      head + "binaryData: {'..': Yg==}\n",
		"1048577 bytes of data, the limit is 1048576": head + "data: {a: " + strings.Repeat("x", 1<<20+1) + "}\n",
		"more than 3145728 bytes":                     head + strings.Repeat("#\n", 3<<19) + "#",
	} {
		t.Run(want, func(t *testing.T) {
			d, put := dir(t)
			put("shop/configmaps/app.yaml", content)
			_, err := d.ConfigMap(t.Context(), "shop", "app")
			assert.ErrorContains(t, err, want)
			assert.ErrorContains(t, err, "read config map shop/app from /")
			assert.ErrorContains(t, err, "/shop/configmaps/app.yaml: ")
		})
	}
}

func TestDirRejectsInvalidServices(t *testing.T) {
	for want, spec := range map[string]string{
		`spec.clusterIP "10.0.0": `:                            "{clusterIP: 10.0.0, ports: [{port: 1}]}",
		"spec.ports: required for a service with a cluster IP": "{clusterIP: 10.0.0.1}",
		"spec.ports[0].port 0: ":                               "{clusterIP: 10.0.0.1, ports: [{port: 0}]}",
		`spec.ports[0].protocol "tcp": `:                       "{clusterIP: 10.0.0.1, ports: [{port: 1, protocol: tcp}]}",
		`spec.ports[0].name "A=": `:                            "{clusterIP: 10.0.0.1, ports: [{port: 1, name: A=}]}",
	} {
		d, put := dir(t)
		put("shop/services/bad.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: "+spec)
		_, err := d.Services(t.Context(), "shop")
		assert.ErrorContains(t, err, "read service shop/bad from ")
		assert.ErrorContains(t, err, want)
	}
}

func TestUnsafeNamesRejected(t *testing.T) {
	d, put := dir(t)
	put("other/secrets/x.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n")
	for _, name := range []string{"../../other/secrets/x", "/etc/passwd", "", "X"} {
		_, err := d.Secret(t.Context(), "shop", name)
		assert.ErrorContains(t, err, "name: ", name)
		assert.NotErrorIs(t, err, fs.ErrNotExist)
		_, err = d.Services(t.Context(), name)
		assert.ErrorContains(t, err, "namespace: ", name)
	}
}

func TestErrorsContainNoSecretData(t *testing.T) {
	const head = "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\n"
	for _, content := range []string{
		"data: {a: hunter2}", "data: hunter2", "data: [hunter2]", "data: {a: {b: hunter2}}", "data: {a: 'hunter2", "data: {a: hunter2: x}",
		"stringData: {a: [hunter2]}", "stringData: {a: \"\\hunter2\"}", "stringData: {a: *hunter2}", "stringData: {a: !!int hunter2}",
		"type: [hunter2]", "\thunter2", "hunter2", "data: {a: 7}\nimmutable: hunter2",
	} {
		d, put := dir(t)
		put("shop/secrets/login.yaml", head+content)
		_, err := d.Secret(t.Context(), "shop", "login")
		if assert.Error(t, err, content) {
			assert.NotContains(t, err.Error(), "hunter2", content)
		}
	}
}

func TestDirReadsRegularFilesOnly(t *testing.T) {
	root := t.TempDir()
	secrets := filepath.Join(root, "shop/secrets")
	require.NoError(t, os.MkdirAll(filepath.Join(secrets, "dir.yaml"), 0o755))
	require.NoError(t, os.Symlink("/etc/hostname", filepath.Join(secrets, "link.yaml")))
	d := objects.NewDir(root)
	for name, want := range map[string]string{"dir": "not a regular file", "link": "path escapes from parent"} {
		_, err := d.Secret(t.Context(), "shop", name)
		assert.ErrorContains(t, err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.Secret(ctx, "shop", "dir")
	assert.ErrorIs(t, err, context.Canceled)
}

func TestDirListsServices(t *testing.T) {
	d, put := dir(t)
	put("shop/services/README", "not a service")
	put("shop/services/.draft.yaml", "not a service either")
	put("shop/services/api.yaml", "# first\n---\napiVersion: v1\nkind: Service\nmetadata: {name: api}\n")
	services, err := d.Services(t.Context(), "shop")
	require.NoError(t, err)
	names := make(map[string]bool)
	for _, s := range services {
		names[s.Name] = true
	}
	assert.Equal(t, []string{"api", "db"}, slices.Sorted(maps.Keys(names)))
}
