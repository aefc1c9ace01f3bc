// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/internal/csitest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// A CSI driver with tokenRequests gets tokens from the API server of the kubeconfig.
func TestCSIDriverGetsServiceAccountTokens(t *testing.T) {
	dir := t.TempDir()
	state, objects := filepath.Join(dir, "state"), filepath.Join(dir, "objects")
	require.NoError(t, os.MkdirAll(filepath.Join(objects, "csidrivers"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(objects, "csidrivers/csi.example.yaml"), []byte(`apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: csi.example}
spec: {volumeLifecycleModes: [Ephemeral], tokenRequests: [{audience: vault}]}
`), 0o600))
	kubeconfig := tokenServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		kind := metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}
		_ = json.NewEncoder(w).Encode(authenticationv1.TokenRequest{TypeMeta: kind, Status: authenticationv1.TokenRequestStatus{
			Token: "t1", ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)),
		}})
	})
	a := newAgent(t, Config{Node: kubeletconfig.NodeConfiguration{RootDir: state, NodeName: "n1", ObjectsDir: objects, Kubeconfig: kubeconfig}})
	o := lifecycle.Options{}
	o.Dirs.Pods = filepath.Join(state, "pods")
	require.NoError(t, os.MkdirAll(a.filePath("plugins_registry"), 0o700))
	require.NoError(t, a.createVolumes(t.Context(), &o))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	a.parts.Start(ctx, &wg, func(err error) { assert.NoError(t, err) }, a.log)
	d := csitest.Start(t, csitest.Options{Registry: a.filePath("plugins_registry")})

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "csi.example"}}}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}}
	require.NoError(t, o.Volumes.Prepare(ctx, pod))
	calls := d.Calls()
	publish, ok := calls[len(calls)-1].Request.(*spec.NodePublishVolumeRequest)
	require.True(t, ok, "%v", d.Methods())
	require.Contains(t, publish.GetVolumeContext()["csi.storage.k8s.io/serviceAccount.tokens"], `"vault":{"token":"t1"`)
	require.NoError(t, o.Volumes.Release(ctx, "u1"))
}
