// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/volume"
)

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string]string{"k": value}}
}

func secret(name, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string][]byte{"k": []byte(value)}}
}

// world is a server, the objects of node n1, and the reported changes.
type world struct {
	*Objects
	source *Source
	server *apiservertest.Server
	stop   func()

	mu   sync.Mutex
	told []string
}

// start runs Objects in virtual time.
func start(t *testing.T, o ObjectsOptions, run bool) *world {
	t.Helper()
	w := &world{server: apiservertest.NewServer(apiservertest.Options{})}
	source, err := New(w.server.Config(), Options{NodeName: "n1"})
	require.NoError(t, err)
	w.source = source
	w.Objects, err = source.Objects(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		assert.NoError(t, w.Watch(ctx, func(kind, namespace, name string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, kind+" "+namespace+"/"+name)
		}))
	})
	if run {
		group.Go(func() { assert.NoError(t, w.Run(ctx)) })
	}
	w.stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
		w.server.Close()
		time.Sleep(time.Minute) // wait for the goroutines of client-go's watches
	})
	t.Cleanup(w.stop)
	synctest.Wait()
	return w
}

// pod returns a pod of namespace shop with the given spec.
func pod(name string, spec corev1.PodSpec) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: spec}
}

func podWithVolume(configMap string) *corev1.Pod {
	return pod("p", corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}},
	}}}})
}

// Objects for variables are read each time and never watched; concurrent reads are one request.
func TestObjectsReadForVariables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, true)
		require.NoError(t, w.server.Put(configMap("c", "1"), secret("s", "geheim")))
		for _, want := range []string{"1", "2"} {
			require.NoError(t, w.server.Put(configMap("c", want)))
			o, err := w.ConfigMap(t.Context(), "shop", "c")
			require.NoError(t, err)
			require.Equal(t, want, o.Data["k"])
		}
		s, err := w.Secret(t.Context(), "shop", "s")
		require.NoError(t, err)
		require.Equal(t, "geheim", string(s.Data["k"]))
		_, err = w.ConfigMap(t.Context(), "shop", "none")
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.EqualError(t, err, `get configmaps shop/none: configmaps "none" not found`)
		require.Zero(t, w.server.OpenWatches("configmaps")+w.server.OpenWatches("secrets"))

		w.server.ForgetRequests()
		w.server.Delay("get", "configmaps", time.Second)
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				_, err := w.ConfigMap(t.Context(), "shop", "c")
				assert.NoError(t, err)
			})
		}
		group.Wait()
		require.Equal(t, 1, w.server.CountRequests(apiservertest.Match{Resource: "configmaps"}))
	})
}

// A read whose context ends does not fail concurrent reads of the object.
func TestCanceledReadDoesNotFailOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, false)
		require.NoError(t, w.server.Put(configMap("c", "1")))
		w.server.Delay("get", "configmaps", 2*time.Second)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() {
			_, err := w.ConfigMap(short, "shop", "c")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		time.Sleep(time.Millisecond)
		group.Go(func() {
			o, err := w.ConfigMap(t.Context(), "shop", "c")
			assert.NoError(t, err)
			assert.Equal(t, "1", o.Data["k"])
		})
		group.Wait()
	})
}

// An error of an unavailable API server makes package volume retry soon; that of a missing or forbidden object does not.
func TestReadErrorIsUnansweredWhileUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, true)
		require.NoError(t, w.server.Put(configMap("c", "1")))
		tokens, r := Tokens{w.client}, volume.TokenRequest{Namespace: "shop", ServiceAccount: "default", Pod: "p", PodUID: "u"}
		asks := map[string]func(name string) error{
			"config map": func(name string) error { _, err := w.Volumes().ConfigMap(t.Context(), "shop", name); return err },
			"claim":      func(name string) error { _, err := w.PersistentVolumeClaim(t.Context(), "shop", name); return err },
			"token":      func(string) error { _, err := tokens.Token(t.Context(), r); return err },
		}
		for name, ask := range asks {
			u, ok := errors.AsType[unavailableError](ask("none"))
			require.False(t, ok && u.Unanswered(), name)
		}
		for _, f := range []apiservertest.Fault{{Code: http.StatusForbidden}, {Code: http.StatusInternalServerError}, {Code: http.StatusTooManyRequests}, {Code: http.StatusUnauthorized}, {Hang: true}} {
			end := w.server.Inject(f)
			for name, ask := range asks {
				err := ask(fmt.Sprint("other", f.Code))
				require.Error(t, err)
				_, ok := errors.AsType[unavailableError](err)
				require.Equal(t, f.Code != http.StatusForbidden, ok, "%s: %v", name, err)
			}
			end()
		}
	})
}

// The API server forbids a node the objects of a pod until it has processed the binding.
func TestForbiddenReadIsRetriedAfterBinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, true)
		require.NoError(t, w.server.Put(secret("s", "geheim"), configMap("c", "1")))
		w.server.Inject(apiservertest.Fault{Match: apiservertest.Match{Verb: "get", Resource: "secrets"}, Times: 2, Code: http.StatusForbidden})
		w.server.Inject(apiservertest.Fault{Match: apiservertest.Match{Verb: "list", Resource: "configmaps"}, Times: 2, Code: http.StatusForbidden})
		began := time.Now()
		_, err := w.Secret(t.Context(), "shop", "s")
		require.NoError(t, err)
		_, err = w.Volumes().ConfigMap(t.Context(), "shop", "c")
		require.NoError(t, err)
		require.Less(t, time.Since(began), 2*time.Second)

		w.server.Fail("get", "secrets", http.StatusForbidden)
		_, err = w.Secret(t.Context(), "shop", "s")
		require.True(t, apierrors.IsForbidden(err))
		require.NotErrorIs(t, err, fs.ErrNotExist)
		w.server.Fail("list", "secrets", http.StatusForbidden)
		_, err = w.Volumes().Secret(t.Context(), "shop", "s")
		require.True(t, apierrors.IsForbidden(err))
	})
}

// Objects of volumes are watched: a change is reported at once, and the object is available while the API server is unavailable.
func TestObjectsOfVolumesAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, true)
		v := w.Volumes()
		_, err := v.ConfigMap(t.Context(), "shop", "c")
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NoError(t, w.server.Put(configMap("c", "1"), configMap("other", "1")))
		synctest.Wait()
		o, err := v.ConfigMap(t.Context(), "shop", "c")
		require.NoError(t, err)
		require.Equal(t, "1", o.Data["k"])
		require.NoError(t, w.server.Put(configMap("c", "2")))
		synctest.Wait()
		w.mu.Lock()
		assert.Equal(t, []string{"ConfigMap shop/c", "ConfigMap shop/c", "ConfigMap shop/c"}, w.told)
		w.mu.Unlock()
		w.server.ForgetRequests()
		o, err = w.ConfigMap(t.Context(), "shop", "c")
		require.NoError(t, err)
		require.Equal(t, "2", o.Data["k"])
		require.Zero(t, w.server.CountRequests(apiservertest.Match{Resource: "configmaps"}), "a variable from a watched config map sends no request")

		w.server.SetUnavailable(true)
		for range 20 {
			time.Sleep(time.Minute)
			o, err = v.ConfigMap(t.Context(), "shop", "c")
			require.NoError(t, err)
			require.Equal(t, "2", o.Data["k"])
		}
		_, err = v.ConfigMap(t.Context(), "shop", "new")
		require.Error(t, err)
		require.NotErrorIs(t, err, fs.ErrNotExist)
		w.server.SetUnavailable(false)
		require.NoError(t, w.server.Put(configMap("c", "3")))
		time.Sleep(31 * time.Second)
		o, err = v.ConfigMap(t.Context(), "shop", "c")
		require.NoError(t, err)
		require.Equal(t, "3", o.Data["k"])
	})
}

// A watch ends if the object is not read, if no pod refers to it any more, and if it is immutable.
func TestUnusedWatchesStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, true)
		v, yes := w.Volumes(), true
		fixed := configMap("fixed", "1")
		fixed.Immutable = &yes
		require.NoError(t, w.server.Put(configMap("c", "1"), configMap("d", "1"), fixed))
		read := func(name string) {
			t.Helper()
			_, err := v.ConfigMap(t.Context(), "shop", name)
			require.NoError(t, err)
		}
		read("c")
		read("d")
		read("fixed")
		synctest.Wait()
		require.Equal(t, 2, w.server.OpenWatches("configmaps"), "an immutable config map has no watch")
		w.Retain([]*corev1.Pod{podWithVolume("c")})
		time.Sleep(4 * time.Minute)
		read("c")
		read("fixed")
		require.Equal(t, 2, w.server.OpenWatches("configmaps"))
		time.Sleep(2 * time.Minute)
		require.Equal(t, 1, w.server.OpenWatches("configmaps"), "the watch of d ends 5 minutes after its last read")
		w.Retain(nil)
		synctest.Wait()
		require.Zero(t, w.server.OpenWatches("configmaps"))
		time.Sleep(10 * time.Minute)
		require.Zero(t, w.configMaps.watchCount())
		read("c")
		synctest.Wait()
		require.Equal(t, 1, w.server.OpenWatches("configmaps"))
		w.stop()
		_, err := v.ConfigMap(t.Context(), "shop", "c")
		require.ErrorIs(t, err, errNotRunning)
	})
}

func TestCollectReferencesOfPod(t *testing.T) {
	name := func(s string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: s} }
	container := corev1.Container{
		EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: name("c1")}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: name("s1")}},
		},
		Env: []corev1.EnvVar{
			{Name: "A", Value: "1"},
			{Name: "B", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: name("c2")}}},
			{Name: "C", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: name("s2")}}},
		},
	}
	p := pod("p", corev1.PodSpec{
		ImagePullSecrets: []corev1.LocalObjectReference{name("s3")},
		InitContainers:   []corev1.Container{container},
		Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s4"}}},
			{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: &corev1.LocalObjectReference{Name: "s5"}}}},
			{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}},
			{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: name("c3")}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: name("s6")}},
			}}}},
		},
	})
	r := collectReferences([]*corev1.Pod{p, podWithVolume("c4")})
	for i := 1; i <= 4; i++ {
		assert.Contains(t, r.configMaps, fmt.Sprint("shop/c", i))
	}
	for i := 1; i <= 6; i++ {
		assert.Contains(t, r.secrets, fmt.Sprint("shop/s", i))
	}
	assert.Len(t, r.configMaps, 4)
	assert.Len(t, r.secrets, 6)
}
