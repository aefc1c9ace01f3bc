// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/internal/hostile"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
)

// newObjectDir returns a function that writes text as the manifest of each kind, and a function that reads all kinds.
func newObjectDir(t testing.TB) (dir string, write func(t testing.TB, text []byte), read func() []error) {
	dir = t.TempDir()
	var files []string
	for _, kind := range []string{"configmaps", "secrets", "services"} {
		files = append(files, filepath.Join(dir, "shop", kind, "app.yaml"))
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "shop", kind), 0o755))
	}
	write = func(t testing.TB, text []byte) {
		for _, file := range files {
			require.NoError(t, os.WriteFile(file, text, 0o600))
		}
	}
	read = func() []error {
		d, ctx := objects.NewDir(dir), context.Background()
		_, err1 := d.ConfigMap(ctx, "shop", "app")
		_, err2 := d.Secret(ctx, "shop", "app")
		_, err3 := d.Services(ctx, "shop")
		return []error{err1, err2, err3}
	}
	return dir, write, read
}

// An object is read at every pod start. A manifest that takes gigabytes or minutes would block all pods.
func TestHostileObjects(t *testing.T) {
	dir, write, read := newObjectDir(t)
	head := func(kind string) string { return "apiVersion: v1\nkind: " + kind + "\nmetadata: {name: app}\n" }
	kinds := []string{"ConfigMap", "Secret", "Service"}
	for i, m := range hostile.All(100_000) {
		_, rest, _ := strings.Cut(string(m.Text), "kind: Pod\n")
		write(t, []byte(strings.ReplaceAll(head(kinds[i%3])+rest, "metadata:\n", "data:\n")))
		var errs []error
		costtest.Check(t, costtest.Limit{Bytes: 3 * costtest.DefaultBytes}, func() { errs = read() }) // three reads
		for _, err := range errs {                                                                    // the error must not quote the manifest
			if err != nil {
				require.ErrorContains(t, err, dir, m.Name)
			}
		}
		if errs[1] != nil {
			assert.NotContains(t, errs[1].Error(), "xxxx", "the error contains no data of the secret")
		}
	}
}

// Quantities of claims and volumes are limited as in pods: this one takes minutes to parse.
func TestHostileQuantities(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"shop/persistentvolumeclaims/app.yaml": "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: app}\nspec: {resources: {requests: {storage: 1e2000000000}}}\n",
		"persistentvolumes/app.yaml":           `{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"app"},"spec":{"capacity":{"storage":"1e-2000000000"}}}`,
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	costtest.Check(t, costtest.Limit{}, func() {
		_, err := objects.NewDir(dir).PersistentVolumeClaim(t.Context(), "shop", "app")
		require.ErrorContains(t, err, `spec.resources.requests.storage: quantity "1e2000000000": the exponent must be between -100 and 100`)
		_, err = objects.NewDir(dir).PersistentVolume(t.Context(), "app")
		require.ErrorContains(t, err, `spec.capacity.storage: quantity "1e-2000000000": the exponent must be between -100 and 100`)
	})
}

// Errors name the invalid field, also of a secret, but contain no data.
func TestErrorsOfHostileObjects(t *testing.T) {
	_, write, read := newObjectDir(t)
	write(t, []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: app}\nstringData:\n  a: &a hunter2"+strings.Repeat("x", 10_000)+"\n  b: ["+strings.Repeat("*a,", 900)+"]\n"))
	errs := read()
	require.ErrorContains(t, errs[1], "secrets/app.yaml: line 6: more than 1074")
	require.ErrorContains(t, errs[1], "bytes of strings, with aliases expanded")
	write(t, []byte(`{"apiVersion":"v1","kind":"Secret","data":{"hunter2":[`+strings.Repeat("1,", 1_000)+"1]}}"))
	errs = read()
	require.ErrorContains(t, errs[0], "configmaps/app.yaml: data.hunter2: a list of more than 1000 elements")
	require.ErrorContains(t, errs[1], "secrets/app.yaml: a list of more than 1000 elements")
	require.NotContains(t, errs[1].Error(), "hunter2")
}

// A large file of plain text is valid.
func TestObjectAtSizeLimitAccepted(t *testing.T) {
	dir, write, _ := newObjectDir(t)
	text := strings.Repeat(`    {"some": ["json", 1, 2.5, "<xml/>"], "x": "`+strings.Repeat("y", 100)+`"},`+"\n", 6_500)
	write(t, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata:\n  b: 1\n  a: |\n"+text))
	o, err := objects.NewDir(dir).ConfigMap(t.Context(), "shop", "app")
	require.NoError(t, err)
	assert.Greater(t, len(o.Data["a"]), 950_000)
}

func FuzzConfigMap(f *testing.F) {
	_, write, read := newObjectDir(f)
	for _, m := range hostile.All(3_000) {
		f.Add(m.Text)
	}
	f.Add([]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata: {a: &a b, c: *a}\n"))
	f.Add([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: app}\nstringData: {a: b}\ndata: {c: ZA==}\n"))
	f.Add([]byte("apiVersion: v1\nkind: Service\nmetadata: {name: app}\nspec: {clusterIP: 192.0.2.7, ports: [{port: 1}]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		write(t, text)
		costtest.Check(t, costtest.Limit{}, func() {
			for _, err := range read() {
				if err != nil {
					require.Less(t, len(err.Error()), 20_000+2*len(text))
				}
			}
		})
	})
}
