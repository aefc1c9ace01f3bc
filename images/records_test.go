// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/images/credential"
)

// readRecords returns the contents of the record files of a kind by their names.
func readRecords(t *testing.T, dir, kind string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, kind))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	found := map[string]string{}
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		data, err := os.ReadFile(filepath.Join(dir, kind, e.Name()))
		require.NoError(t, err)
		found[e.Name()] = string(data)
	}
	return found
}

// recordName returns the file name of the record for an image name or ID.
func recordName(s string) string { return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(s))) }

// writeRecord writes a record file.
func writeRecord(t *testing.T, dir, kind, name, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, kind), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, kind, recordName(name)), []byte(content), 0o600))
}

// Record files are byte for byte those of the kubelet.
func TestRecordFormatEqualsKubelet(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		during := map[string]string{}
		rt := critest.New(critest.Options{
			Images: []cri.Image{},
			Pull: func(_ context.Context, i cri.ImageSpec, _ *cri.Auth) (cri.Image, error) {
				during = readRecords(t, dir, "pulling")
				return critest.NewImage(i.Image, 1), nil
			},
		})
		puller, err := images.New(rt, rt, images.Options{Records: dir, Providers: []credential.Provider{
			credential.ProviderFunc(func(_ context.Context, repository string, pod credential.Pod) ([]credential.Credential, error) {
				if repository != "s.io/app" {
					return nil, nil
				}
				return []credential.Credential{{Username: "u", Password: "p", Source: credential.Source{
					Kind: credential.FromServiceAccount, Object: credential.Object{UID: "uid-sa", Namespace: pod.Namespace, Name: "sa"},
				}}}, nil
			}),
		}})
		require.NoError(t, err)

		_, err = puller.Ensure(t.Context(), request("b", "r.io/app:v1", "u"))
		require.NoError(t, err)
		assert.Equal(t, map[string]string{
			recordName("r.io/app:v1"): `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"r.io/app:v1"}` + "\n",
		}, during)
		assert.Empty(t, readRecords(t, dir, "pulling"))

		time.Sleep(1500 * time.Millisecond)
		r := request("a", "r.io/app:v1", "v")
		r.Policy = images.PullAlways
		_, err = puller.Ensure(t.Context(), r)
		require.NoError(t, err)
		_, err = puller.Ensure(t.Context(), request("c", "s.io/app:v1", ""))
		require.NoError(t, err)
		_, err = puller.Ensure(t.Context(), request("d", "docker.io/library/open:v1", ""))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		_, err = puller.Ensure(t.Context(), r) // an unchanged record is not written again
		require.NoError(t, err)

		id := func(ref string) string { return critest.NewImage(ref, 1).ID }
		pulled := func(ref, mapping string) string {
			return `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2000-01-01T00:00:01Z",` +
				`"imageRef":"` + id(ref) + `","credentialMapping":` + mapping + "}\n"
		}
		hash := func(user string) string {
			return fmt.Sprintf("%x", sha256.Sum256([]byte(`{"username":"`+user+`","password":"password"}`)))
		}
		assert.Equal(t, map[string]string{
			recordName(id("r.io/app:v1")): pulled("r.io/app:v1", `{"r.io/app":{"kubernetesSecrets":[`+
				`{"uid":"uid-of-a","namespace":"ns","name":"of-a","credentialHash":"`+hash("v")+`"},`+
				`{"uid":"uid-of-b","namespace":"ns","name":"of-b","credentialHash":"`+hash("u")+`"}]}}`),
			recordName(id("s.io/app:v1")): pulled("s.io/app:v1",
				`{"s.io/app":{"kubernetesServiceAccounts":[{"uid":"uid-sa","namespace":"ns","name":"sa"}]}}`),
			recordName(id("docker.io/library/open:v1")): pulled("docker.io/library/open:v1",
				`{"docker.io/library/open":{"nodePodsAccessible":true}}`),
		}, readRecords(t, dir, "pulled"))

		info, err := os.Stat(filepath.Join(dir, "pulled"))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	})
}

// newPullerWithImage returns a puller on a node with the image r.io/app:v1 and the records in dir.
func newPullerWithImage(t *testing.T, dir string) (*images.Puller, cri.Image) {
	t.Helper()
	image := critest.NewImage("r.io/app:v1", 1)
	rt := critest.New(critest.Options{
		Images: []cri.Image{
			image, critest.NewImage("docker.io/library/busybox:latest", 1), {ID: "two", RepoDigests: []string{"r.io/two@" + digest}},
		},
		Pull: func(context.Context, cri.ImageSpec, *cri.Auth) (cri.Image, error) {
			return cri.Image{}, errors.New("401 Unauthorized")
		},
	})
	puller, err := images.New(rt, rt, images.Options{Records: dir})
	require.NoError(t, err)
	return puller, image
}

// mayUse reports whether a pod of user may use the existing image without a pull.
func mayUse(t *testing.T, puller *images.Puller, image, user string) bool {
	t.Helper()
	r := request("p", image, user)
	r.Policy = images.PullNever
	_, err := puller.Ensure(t.Context(), r)
	return err == nil
}

// Records of the kubelet are read in both API versions. An invalid or unknown record grants no access.
func TestKubeletRecordsGrantAccess(t *testing.T) {
	id := critest.NewImage("r.io/app:v1", 1).ID
	head := `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2024-10-21T12:26:40Z","imageRef":"` + id + `"`
	allPods := head + `,"credentialMapping":{"r.io/app":{"nodePodsAccessible":true}}}`
	hash := credential.Credential{Username: "u", Password: "password"}.Hash()
	secrets := func(list string) string {
		return head + `,"credentialMapping":{"r.io/app":{"kubernetesSecrets":[` + list + `]}}}`
	}
	for _, tt := range []struct {
		name, record string
		none, u, v   bool // access without a secret, and with the secret of user u or v
	}{
		{"access for all pods", allPods, true, true, true},
		{"old API version", strings.Replace(allPods, "v1beta1", "v1alpha1", 1), true, true, true},
		{"matching hash", secrets(`{"uid":"x","namespace":"x","name":"x","credentialHash":"` + hash + `"}`), false, true, false},
		{"matching UID, namespace and name", secrets(`{"uid":"uid-of-p","namespace":"ns","name":"of-p","credentialHash":"x"}`), false, true, true},
		{"record without hash", secrets(`{"uid":"x","namespace":"x","name":"x","credentialHash":""}`), false, false, false},
		{"other repository", strings.Replace(allPods, "r.io/app", "s.io/app", 1), false, false, false},
		{"record without credentials", head + `}`, false, false, false},
		{"unknown API version", strings.Replace(allPods, "v1beta1", "v2", 1), false, false, false},
		{"another kind", strings.Replace(allPods, "ImagePulledRecord", "ImagePullIntent", 1), false, false, false},
		{"unknown field", strings.Replace(allPods, `:true`, `:true,"unless":"Sunday"`, 1), false, false, false},
		{"two JSON objects", allPods + allPods, false, false, false},
		{"empty file", "", false, false, false},
		{"record of another image", strings.Replace(secrets(""), id, "sha256:other", 1), true, true, true}, // the image counts as preloaded
	} {
		t.Run(tt.name, func(t *testing.T) {
			for user, want := range map[string]bool{"": tt.none, "u": tt.u, "v": tt.v} {
				dir := t.TempDir()
				writeRecord(t, dir, "pulled", id, tt.record)
				puller, _ := newPullerWithImage(t, dir)
				assert.Equal(t, want, mayUse(t, puller, "r.io/app:v1", user), "user %q", user)
			}
		})
	}
}

// A record has at most 100 secrets. Later secrets with an equal hash are not added, but grant access.
func TestRecordSizeIsBounded(t *testing.T) {
	dir := t.TempDir()
	puller, image := newPullerWithImage(t, dir)
	hash := credential.Credential{Username: "u", Password: "password"}.Hash()
	writeRecord(t, dir, "pulled", image.ID, `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2024-10-21T12:26:40Z",`+
		`"imageRef":"`+image.ID+`","credentialMapping":{"r.io/app":{"kubernetesSecrets":[{"uid":"x","namespace":"x","name":"x","credentialHash":"`+hash+`"}]}}}`)
	for i := range 120 {
		r := request(fmt.Sprint("p", i), "r.io/app:v1", "u")
		_, err := puller.Ensure(t.Context(), r)
		require.NoError(t, err)
	}
	record := readRecords(t, dir, "pulled")[recordName(image.ID)]
	assert.Equal(t, 100, strings.Count(record, `"credentialHash"`))

	// A recorded secret with a new login is not added to the full record and grants no access.
	r := request("p5", "r.io/app:v1", "v")
	r.Policy = images.PullNever
	_, err := puller.Ensure(t.Context(), r)
	assert.Error(t, err)
}

// The intent of an image is removed at the end of its last running pull.
func TestIntentStaysUntilLastPullEnds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := pullRecorder{refused: map[string]bool{"": true}}
		puller, _ := newPuller(t, &p, images.Options{Records: dir})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := puller.Ensure(t.Context(), request("a", "r.io/app:v1", ""))
			assert.Error(t, err)
		})
		time.Sleep(time.Second / 2)
		wg.Go(func() {
			_, err := puller.Ensure(t.Context(), request("b", "r.io/app:v1", "u"))
			assert.NoError(t, err)
		})
		time.Sleep(time.Second / 4)
		assert.Len(t, readRecords(t, dir, "pulling"), 1, "two pulls are running")
		time.Sleep(time.Second / 2)
		assert.Len(t, readRecords(t, dir, "pulling"), 1, "the second pull is running")
		wg.Wait()
		assert.Empty(t, readRecords(t, dir, "pulling"))
	})
}

// The intent of an interrupted pull prevents the image from counting as preloaded.
func TestRecoveredIntentDeniesAccess(t *testing.T) {
	dir := t.TempDir()
	intent := func(image string) {
		writeRecord(t, dir, "pulling", image, `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"`+image+`"}`)
	}
	intent("r.io/app:v1")
	intent("busybox")
	intent("r.io/gone:v1")
	intent("r.io/two:v1@" + digest)
	puller, _ := newPullerWithImage(t, dir)
	assert.False(t, mayUse(t, puller, "r.io/app:v1", ""))

	require.NoError(t, puller.Recover(t.Context()))
	assert.Len(t, readRecords(t, dir, "pulling"), 1, "the intent of the missing image stays")
	assert.Contains(t, readRecords(t, dir, "pulling"), recordName("r.io/gone:v1"))
	assert.Len(t, readRecords(t, dir, "pulled"), 3)
	assert.NotContains(t, readRecords(t, dir, "pulled")[recordName(critest.NewImage("r.io/app:v1", 1).ID)], "credentialMapping")
	assert.False(t, mayUse(t, puller, "r.io/app:v1", ""))
	assert.False(t, mayUse(t, puller, "docker.io/library/busybox:latest", ""))
}

func TestRecoverSkipsDamagedIntents(t *testing.T) {
	dir := t.TempDir()
	writeRecord(t, dir, "pulling", "x", `{"kind"`)
	writeRecord(t, dir, "pulling", "r.io/app:v1", `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"r.io/app:v1"}`)
	puller, _ := newPullerWithImage(t, dir)
	require.ErrorContains(t, puller.Recover(t.Context()), recordName("x"))
	assert.Len(t, readRecords(t, dir, "pulled"), 1)

	empty, _ := newPullerWithImage(t, t.TempDir())
	require.NoError(t, empty.Recover(t.Context()))
}

func TestPruneRemovesRecordsOfMissingImages(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Images: []cri.Image{}})
		puller, err := images.New(rt, rt, images.Options{Records: dir})
		require.NoError(t, err)
		for _, image := range []string{"r.io/stays:v1", "r.io/goes:v1"} {
			_, err := puller.Ensure(t.Context(), request("p", image, "u"))
			require.NoError(t, err)
		}
		require.NoError(t, rt.RemoveImage(t.Context(), cri.ImageSpec{Image: "r.io/goes:v1"}))
		time.Sleep(1500 * time.Millisecond)
		listed := time.Now()
		present, err := rt.ListImages(t.Context())
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		_, err = puller.Ensure(t.Context(), request("p", "r.io/comes:v1", "u")) // pulled within the second of the list
		require.NoError(t, err)

		require.NoError(t, puller.Prune(present, listed))
		found := readRecords(t, dir, "pulled")
		assert.Len(t, found, 2)
		assert.NotContains(t, found, recordName(critest.NewImage("r.io/goes:v1", 1).ID))
	})
}
