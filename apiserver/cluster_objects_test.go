// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"io/fs"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/volume"
)

func (c *cluster) post(path string, o any) {
	c.Helper()
	require.NoError(c, c.Admin().Do(c.Context(), http.MethodPost, path, o, nil))
}

func (c *cluster) configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"k": value},
	}
}

// newReferringPod is a pod of the node with a volume of config map c1, a variable of secret s1 and a token for audience vault.
func newReferringPod(name string) *corev1.Pod {
	seconds := int64(600)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName: "n1", ServiceAccountName: "default",
			Containers: []corev1.Container{{Name: "c", Image: "x", Env: []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s1"}, Key: "k"},
			}}}}},
			Volumes: []corev1.Volume{
				{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c1"}}}},
				{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault", ExpirationSeconds: &seconds, Path: "token"}},
				}}}},
			},
		},
	}
}

// A real API server permits a node to read the objects that its pods refer to, as soon as it knows the pods, and no others.
func TestClusterObjects(t *testing.T) {
	c := newCluster(t)
	objects, err := c.source.Objects(apiserver.ObjectsOptions{CacheDir: t.TempDir() + "/kept"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { require.NoError(t, objects.Run(ctx)) })
	defer group.Wait()
	defer cancel()
	c.post("/api/v1/namespaces/default/configmaps", c.configMap("c1", "1"))
	c.post("/api/v1/namespaces/default/secrets", &corev1.Secret{
		TypeMeta: metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "s1"}, Data: map[string][]byte{"k": []byte("v")},
	})
	c.post("/apis/node.k8s.io/v1/runtimeclasses", &nodev1.RuntimeClass{
		TypeMeta: metav1.TypeMeta{Kind: "RuntimeClass", APIVersion: "node.k8s.io/v1"}, ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc",
	})
	c.post("/apis/storage.k8s.io/v1/csidrivers", &storagev1.CSIDriver{
		TypeMeta: metav1.TypeMeta{Kind: "CSIDriver", APIVersion: "storage.k8s.io/v1"}, ObjectMeta: metav1.ObjectMeta{Name: "csi.example"},
	})

	_, err = objects.Secret(t.Context(), "default", "s1")
	require.True(t, apierrors.IsForbidden(err), "the node may not read a secret that no pod refers to: %v", err)
	require.NotErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, c.createPod(newReferringPod("web")))
	var pod *corev1.Pod
	c.awaitCondition("the pod", func() bool { // agents request the objects of a pod only after they have the pod
		u := c.last.Load()
		if u == nil || len(u.Pods) == 0 {
			return false
		}
		pod = u.Pods[0]
		return true
	})
	secret, err := objects.Secret(t.Context(), "default", "s1")
	require.NoError(t, err)
	require.Equal(t, "v", string(secret.Data["k"]))
	volumes := objects.Volumes()
	o, err := volumes.ConfigMap(t.Context(), "default", "c1")
	require.NoError(t, err)
	require.Equal(t, "1", o.Data["k"])
	require.NoError(t, c.Admin().Do(t.Context(), http.MethodPut, "/api/v1/namespaces/default/configmaps/c1", c.configMap("c1", "2"), nil))
	c.awaitCondition("the changed config map", func() bool {
		o, err := volumes.ConfigMap(t.Context(), "default", "c1")
		return err == nil && o.Data["k"] == "2"
	})

	tokens := c.source.Tokens()
	r := volume.TokenRequest{Namespace: "default", ServiceAccount: "default", Audience: "vault", ExpirationSeconds: 600, Pod: "web", PodUID: string(pod.UID)}
	got, err := tokens.Token(t.Context(), r)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(10*time.Minute), got.Expires, time.Minute)
	r.Audience = "elsewhere"
	_, err = tokens.Token(t.Context(), r)
	require.Error(t, err, "no volume of the pod has the audience")
	require.NotContains(t, err.Error(), got.Value)

	services, err := objects.Services(t.Context(), "default")
	require.NoError(t, err)
	require.Equal(t, "kubernetes", services[0].Name)
	require.NotEmpty(t, services[0].Spec.ClusterIP)
	c.awaitCondition("the runtime class", func() bool {
		handler, ok := objects.RuntimeClass("gvisor")
		return ok && handler == "runsc"
	})
	_, err = objects.CSIDriver(t.Context(), "csi.example")
	require.NoError(t, err)
	c.editNode(objects)
	c.expandClaim(objects)

	require.NoError(t, c.Kill("kube-apiserver"))
	secret, err = objects.Secret(t.Context(), "default", "s1")
	require.NoError(t, err, "the secret is still available while the API server is down")
	require.Equal(t, "v", string(secret.Data["k"]))
	_, err = volumes.ConfigMap(t.Context(), "default", "c1")
	require.NoError(t, err)
}

// editNode registers a CSI driver of the node.
func (c *cluster) editNode(objects *apiserver.Objects) {
	require.NoError(c, objects.EditNode(c.Context(), func(n *corev1.Node) (bool, error) {
		n.Labels = map[string]string{"topology.csi.example/zone": "a"}
		n.Annotations = map[string]string{"csi.volume.kubernetes.io/nodeid": `{"csi.example":"1"}`}
		return true, nil
	}))
	for _, driver := range []string{"csi.example", "other.example"} {
		require.NoError(c, objects.EditCSINode(c.Context(), func(n *storagev1.CSINode) bool {
			n.Spec.Drivers = append(n.Spec.Drivers, storagev1.CSINodeDriver{Name: driver, NodeID: "1"})
			return true
		}))
	}
	node, csiNode := &corev1.Node{}, &storagev1.CSINode{}
	require.NoError(c, c.Admin().Do(c.Context(), http.MethodGet, "/api/v1/nodes/n1", nil, node))
	require.Equal(c, "a", node.Labels["topology.csi.example/zone"])
	require.Contains(c, node.Annotations["csi.volume.kubernetes.io/nodeid"], "csi.example")
	require.NoError(c, c.Admin().Do(c.Context(), http.MethodGet, "/apis/storage.k8s.io/v1/csinodes/n1", nil, csiNode))
	require.Len(c, csiNode.Spec.Drivers, 2)
	require.Equal(c, node.UID, csiNode.OwnerReferences[0].UID)
}

// expandClaim reports the expansion of a bound claim of the pod. The controller would reset the status of an unbound claim.
func (c *cluster) expandClaim(objects *apiserver.Objects) {
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.post("/api/v1/persistentvolumes", &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{Kind: "PersistentVolume", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "v1"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "data"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: c.TempDir()}},
		},
	})
	c.post("/api/v1/namespaces/default/persistentvolumeclaims", &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{Kind: "PersistentVolumeClaim", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			VolumeName: "v1", AccessModes: modes, StorageClassName: new(string), Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	})
	var claim *corev1.PersistentVolumeClaim
	c.awaitCondition("the claim is bound", func() (bound bool) {
		var err error
		claim, err = objects.PersistentVolumeClaim(c.Context(), "default", "data")
		return err == nil && claim.Status.Phase == corev1.ClaimBound
	})
	require.Equal(c, "1Gi", claim.Status.Capacity.Storage().String())
	require.NoError(c, objects.ClaimExpanded(c.Context(), claim, 2<<30))
	claim, err := objects.PersistentVolumeClaim(c.Context(), "default", "data")
	require.NoError(c, err)
	require.Equal(c, "2Gi", claim.Status.Capacity.Storage().String())
}
