// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/volume"
)

func serviceObject(i int) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%03d", i%100), Name: fmt.Sprintf("service-%05d", i),
			Labels: map[string]string{"app": "x", "team": "y"}, Annotations: map[string]string{"a": strings.Repeat("x", 200)},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: fmt.Sprintf("10.0.%d.%d", i/256, i%256), Selector: map[string]string{"app": "x"},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}, {Name: "metrics", Protocol: "TCP", Port: 9090}},
		},
	}
}

func TestServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, false)
		_, err := w.Services(t.Context(), "shop")
		require.ErrorContains(t, err, "are not listed yet: is Objects.Run running?")
	})
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, true)
		api := serviceObject(7)
		api.Namespace, api.Name = "default", "kubernetes"
		headless := serviceObject(8)
		headless.Spec.ClusterIP = "None"
		require.NoError(t, w.server.Put(api, headless, serviceObject(9)))
		synctest.Wait()
		got, err := w.Services(t.Context(), "default")
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, corev1.ServiceSpec{ClusterIP: "10.0.0.7", Ports: api.Spec.Ports}, got[0].Spec)
		require.Equal(t, metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, got[0].ObjectMeta)
		got, err = w.Services(t.Context(), headless.Namespace)
		require.NoError(t, err)
		require.Empty(t, got)
		w.server.SetUnavailable(true)
		got, err = w.Services(t.Context(), "team-009")
		require.NoError(t, err)
		require.Len(t, got, 1)
	})
}

// Ten thousand services of a cluster need at most 1.2 MiB, also after many changes, and the whole agent at most 4 MiB.
func TestServiceMemory(t *testing.T) {
	const most = 12 << 20 / 10
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	source, err := New(server.Config(), Options{NodeName: "n1"})
	require.NoError(t, err)
	for i := range 10_000 {
		require.NoError(t, server.Put(serviceObject(i)))
	}
	s := newServiceTable(source.client, nil, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.table.Run(ctx) }()
	<-s.ready
	require.Equal(t, 10_000, s.table.Len())
	for i := range 10_000 {
		o := serviceObject(i)
		o.Spec.Ports[1].Port++
		require.NoError(t, server.Put(o))
	}
	require.Eventually(t, func() bool {
		got, err := s.listServices(t.Context(), "team-099")
		return err == nil && got[99].Spec.Ports[1].Port == 9091
	}, 20*time.Second, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	server.ForgetRequests()
	source.client.CloseConnections()
	with := heapSize()
	runtime.KeepAlive(s)
	s = nil
	used := with - heapSize()
	t.Logf("%d bytes", used)
	require.Greater(t, used, int64(most/2), "the services must use most of the memory")
	require.Less(t, used, int64(most))
}

func heapSize() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestNodeWideObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, true)
		require.NoError(t, w.server.Put(
			&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc"},
			&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example"}},
			&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}},
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}},
			&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-1"}},
		))
		synctest.Wait()
		handler, ok := w.RuntimeClass("gvisor")
		require.True(t, ok)
		require.Equal(t, "runsc", handler)
		_, ok = w.RuntimeClass("kata")
		require.False(t, ok)
		_, err := w.CSIDriver(t.Context(), "csi.example")
		require.NoError(t, err)
		w.mu.Lock()
		require.Contains(t, w.told, "CSIDriver /csi.example")
		w.mu.Unlock()
		_, err = w.PersistentVolume(t.Context(), "disk")
		require.NoError(t, err)
		_, err = w.PersistentVolumeClaim(t.Context(), "shop", "data")
		require.NoError(t, err)
		_, err = w.VolumeAttachment(t.Context(), "csi-1")
		require.NoError(t, err)
		for _, err := range []error{
			func() error { _, err := w.CSIDriver(t.Context(), "x"); return err }(),
			func() error { _, err := w.PersistentVolume(t.Context(), "x"); return err }(),
			func() error { _, err := w.PersistentVolumeClaim(t.Context(), "shop", "x"); return err }(),
			func() error { _, err := w.VolumeAttachment(t.Context(), "x"); return err }(),
		} {
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
		w.server.Fail("get", "persistentvolumes", http.StatusInternalServerError)
		_, err = w.PersistentVolume(t.Context(), "disk")
		require.Error(t, err)
		require.NotErrorIs(t, err, fs.ErrNotExist)
	})
}

// A change of this node's objects keeps concurrent changes of other clients.
func TestEditNodeObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, false)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"old": "1"}, Annotations: map[string]string{"gone": "1"}}}
		require.NoError(t, w.server.Put(node))
		tries := 0
		require.NoError(t, w.EditNode(t.Context(), func(n *corev1.Node) (bool, error) {
			if tries++; tries == 1 {
				require.NoError(t, apiservertest.Change(w.server, "", "n1", func(n *corev1.Node) { n.Labels["other"] = "1" }))
			}
			n.Labels["zone"] = "a"
			delete(n.Annotations, "gone")
			return true, nil
		}))
		require.Equal(t, 2, tries)
		got, _ := apiservertest.Get[*corev1.Node](w.server, "", "n1")
		require.Equal(t, map[string]string{"old": "1", "other": "1", "zone": "a"}, got.Labels)
		require.Empty(t, got.Annotations)

		add := func(driver string) func(*storagev1.CSINode) bool {
			return func(n *storagev1.CSINode) bool {
				n.Spec.Drivers = append(n.Spec.Drivers, storagev1.CSINodeDriver{Name: driver, NodeID: "1"})
				return true
			}
		}
		require.NoError(t, w.EditCSINode(t.Context(), add("a")))
		require.NoError(t, w.EditCSINode(t.Context(), add("b")))
		csi, _ := apiservertest.Get[*storagev1.CSINode](w.server, "", "n1")
		require.Len(t, csi.Spec.Drivers, 2)
		require.Equal(t, got.UID, csi.OwnerReferences[0].UID)
		w.server.Fail("update", "csinodes", http.StatusConflict)
		require.ErrorContains(t, w.EditCSINode(t.Context(), add("c")), "5 tries")
		w.server.ForgetRequests()
		require.NoError(t, w.EditCSINode(t.Context(), func(*storagev1.CSINode) bool { return false }))
		require.Equal(t, 1, w.server.CountRequests(apiservertest.Match{}))
	})
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, false)
		p := pod("p", corev1.PodSpec{})
		p.UID = "u1"
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app", Annotations: map[string]string{"a": "1"}}}
		require.NoError(t, w.server.Put(p, account))
		tokens := w.source.Tokens()
		r := volume.TokenRequest{Namespace: "shop", ServiceAccount: "app", Audience: "vault", ExpirationSeconds: 600, Pod: "p", PodUID: "u1"}
		w.server.Inject(apiservertest.Fault{Match: apiservertest.Match{Subresource: "token"}, Times: 2, Code: http.StatusForbidden})
		got, err := tokens.Token(t.Context(), r)
		require.NoError(t, err)
		require.NotEmpty(t, got.Value)
		require.WithinDuration(t, time.Now().Add(10*time.Minute), got.Expires, 2*time.Second)

		r.PodUID = "u2"
		_, err = tokens.Token(t.Context(), r)
		require.True(t, apierrors.IsConflict(err), "%v", err)
		require.ErrorContains(t, err, "create serviceaccounts/token shop/app")
		r.PodUID = ""
		_, err = tokens.Token(t.Context(), r)
		require.ErrorContains(t, err, "no pod and UID")

		accounts := tokens.Accounts()
		who, err := accounts.ServiceAccount(t.Context(), "shop", "app")
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "1"}, who.Annotations)
		_, err = accounts.ServiceAccount(t.Context(), "shop", "none")
		require.ErrorIs(t, err, fs.ErrNotExist)
		w.server.ForgetRequests()
		want := credential.TokenRequest{Account: credential.Object{Namespace: "shop", Name: "app"}, Audience: "registry", Pod: credential.Pod{Name: "p", UID: "u1"}}
		first, err := accounts.Token(t.Context(), want)
		require.NoError(t, err)
		again, err := accounts.Token(t.Context(), want)
		require.NoError(t, err)
		require.Equal(t, first, again)
		require.Equal(t, 1, w.server.CountRequests(apiservertest.Match{Subresource: "token"}))
	})
}
