// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// app is a pod with two tokens of its service account: one in the volume that the API server adds to every pod, and one with
// the shortest possible lifetime in a volume of the pod.
type app struct {
	*cluster

	uid     string
	volumes map[string]string // names of the volumes, by their names in appScript
}

const (
	account      = "system:serviceaccount:default:app"
	shortSeconds = 600
)

// appScript runs kubectl auth whoami with each token whenever one of them has changed.
const appScript = `trap 'exit 0' TERM
access=/var/run/secrets/kubernetes.io/serviceaccount
server=https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT
who='jsonpath={.status.userInfo.username}'
last=
while :; do
  long=$(sha256sum < $access/token | cut -c1-64) short=$(sha256sum < /short/token | cut -c1-64)
  if [ "$long $short" != "$last" ] &&
    first=$(kubectl auth whoami -o $who) &&
    second=$(kubectl --server=$server --certificate-authority=$access/ca.crt --token=$(cat /short/token) auth whoami -o $who); then
    echo long $long $first; echo short $short $second; last="$long $short"
  fi
  sleep 0.5
done`

// startApp creates a pod in the API server, which completes it, and writes the result as a static pod with the same UID. An
// agent with the API server as source does this by itself.
func (c *cluster) startApp() *app {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}} // the pod garbage collector deletes pods of a node that does not exist
	c.do(http.MethodPost, "/api/v1/nodes", node, nil)
	c.do(http.MethodPost, pathAccounts, corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "app"}}, nil)
	var root corev1.ConfigMap
	exetest.Eventually(c.t, clusterTimeout, func() error { return c.get(pathMaps+"/kube-root-ca.crt", &root) })
	root.ManagedFields = nil
	c.objects.Write("default/configmaps/kube-root-ca.crt.yaml", c.manifest(root, "ConfigMap"))

	pod := c.appPod()
	c.do(http.MethodPost, pathPods, pod, &pod)
	a := &app{cluster: c, uid: string(pod.UID), volumes: map[string]string{"short": "short", "long": ""}}
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil && v.Name != "short" {
			a.volumes["long"] = v.Name
		}
	}
	require.NotEmpty(c.t, a.volumes["long"], "the API server adds a token volume")
	// The agent appends the name of the node, as to every static pod.
	static := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: pod.Namespace, UID: pod.UID, Labels: pod.Labels}, Spec: pod.Spec}
	c.manifests.Write("app.yaml", c.manifest(static, "Pod"))
	c.awaitRunning(timeout, "app-n1")
	return a
}

// appPod is the pod as a user writes it, bound to the node.
func (c *cluster) appPod() corev1.Pod {
	address := c.URL()[len("https://"):]
	host, port, err := net.SplitHostPort(address)
	require.NoError(c.t, err)
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app-n1", Labels: map[string]string{"app": "app"}},
		Spec: corev1.PodSpec{
			NodeName: "n1", ServiceAccountName: "app", TerminationGracePeriodSeconds: new(int64(2)),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, // the node is not ready
			Containers: []corev1.Container{{
				Name: "main", Image: controlplane.Images()[controlplane.Kubectl], ImagePullPolicy: corev1.PullNever,
				Command: []string{"/bin/sh", "-c", appScript},
				Env: []corev1.EnvVar{ // without kube-proxy the service address does not work
					{Name: "KUBERNETES_SERVICE_HOST", Value: host}, {Name: "KUBERNETES_SERVICE_PORT", Value: port},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "short", MountPath: "/short", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "short", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
					Path: "token", ExpirationSeconds: new(int64(shortSeconds)),
				}}},
			}}}},
		},
	}
}

// manifest returns an object as a manifest.
func (c *cluster) manifest(object any, kind string) string {
	c.t.Helper()
	text, err := json.Marshal(object)
	require.NoError(c.t, err)
	var fields map[string]any
	require.NoError(c.t, json.Unmarshal(text, &fields))
	fields["apiVersion"], fields["kind"] = "v1", kind
	delete(fields, "status")
	text, err = json.Marshal(fields)
	require.NoError(c.t, err)
	return string(text)
}

// readToken returns the current token in a volume.
func (a *app) readToken(volume string) string {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join(a.state, "pods", a.uid, "volumes", "kubernetes.io~projected", a.volumes[volume], "token"))
	require.NoError(a.t, err)
	return string(text)
}

// reviewToken returns the user of a token.
func (a *app) reviewToken(token string) (authenticationv1.UserInfo, error) {
	review := authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}}
	client := a.TokenClient(token)
	defer client.Close()
	err := client.Do(within(a.t, 10*time.Second), http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, &review)
	return review.Status.UserInfo, err
}

// checkIdentity waits until the container has logged its user for its current token, and checks that the token is bound to
// the pod.
func (a *app) checkIdentity(volume string) {
	a.t.Helper()
	token := a.readToken(volume)
	a.awaitLog("app-n1", "main", fmt.Sprintf("%s %x %s", volume, sha256.Sum256([]byte(token)), account))
	info, err := a.reviewToken(token)
	require.NoError(a.t, err)
	require.Equal(a.t, account, info.Username)
	require.Equal(a.t, authenticationv1.ExtraValue{"app-n1"}, info.Extra["authentication.kubernetes.io/pod-name"])
	require.Equal(a.t, authenticationv1.ExtraValue{a.uid}, info.Extra["authentication.kubernetes.io/pod-uid"])
}

// awaitNewToken waits until a volume has another token than old.
func (a *app) awaitNewToken(volume, old string, limit time.Duration) {
	a.t.Helper()
	exetest.Eventually(a.t, limit, func() error {
		if a.readToken(volume) == old {
			return fmt.Errorf("the volume %s still has its old token", volume)
		}
		return nil
	})
}

// awaitRefresh waits until the agent, which was started at since, has requested a new token because the old one was in the
// last fifth of its lifetime.
func (a *app) awaitRefresh(since time.Time) {
	a.t.Helper()
	if testing.Short() {
		a.t.Log("without -short: wait for the refresh of a token")
		return
	}
	old, long := a.readToken("short"), a.readToken("long")
	a.awaitNewToken("short", old, shortSeconds*time.Second)
	age := time.Since(since)
	a.t.Logf("a token of %d s was replaced after at most %v", shortSeconds, age.Round(time.Second))
	require.Greater(a.t, age, shortSeconds*4/5*time.Second-15*time.Second, "the token is not replaced early")
	a.checkIdentity("short")
	require.Equal(a.t, long, a.readToken("long"), "the long-lived token is not replaced")
}

// checkRemoval removes the pod, and checks that none of its tokens remains valid.
func (a *app) checkRemoval() {
	a.t.Helper()
	tokens := []string{a.readToken("long"), a.readToken("short")}
	a.manifests.Remove("app.yaml")
	exetest.Eventually(a.t, timeout, func() error {
		pods, err := a.pods()
		if _, there := pods["app-n1"]; there {
			err = fmt.Errorf("the pod is not removed")
		}
		return err
	})
	exetest.Eventually(a.t, timeout, func() error {
		left, err := filepath.Glob(filepath.Join(a.state, "pods", a.uid))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("remaining directories: %s", left)
		}
		return err
	})
	a.do(http.MethodDelete, pathPods+"/app-n1?gracePeriodSeconds=0", nil, nil)
	for _, token := range tokens {
		exetest.Eventually(a.t, timeout, func() error { // the API server caches authenticated tokens for 10 s
			_, err := a.reviewToken(token)
			if controlplane.StatusCode(err) == http.StatusUnauthorized {
				return nil
			}
			return fmt.Errorf("the token of a removed pod is still valid: %w", err)
		})
	}
}
