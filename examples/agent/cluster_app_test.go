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

// app is a pod with two tokens of its service account: that of the volume which the API server gives to every pod, and one in a
// volume of its own that is valid for the shortest time there is.
type app struct {
	*cluster

	uid     string
	volumes map[string]string // by what its script calls them
}

const (
	account      = "system:serviceaccount:default:app"
	shortSeconds = 600
)

// appScript asks the API server who it is, by each token, when there is another one.
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

// startApp creates a pod in the API server, which completes it, and gives what came of it to the agent as a static pod with the
// same UID. This is what an agent does itself that gets its pods from there.
func (c *cluster) startApp() *app {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}} // pods on a node that does not exist are deleted
	c.do(http.MethodPost, "/api/v1/nodes", node, nil)
	c.do(http.MethodPost, pathAccounts, corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "app"}}, nil)
	var root corev1.ConfigMap
	exetest.Eventually(c.t, clusterTimeout, func() error { return c.get(pathMaps+"/kube-root-ca.crt", &root) })
	root.ManagedFields = nil
	c.objects.Write("default/configmaps/kube-root-ca.crt.yaml", c.json(root, "ConfigMap"))

	pod := c.appPod()
	c.do(http.MethodPost, pathPods, pod, &pod)
	a := &app{cluster: c, uid: string(pod.UID), volumes: map[string]string{"short": "short", "long": ""}}
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil && v.Name != "short" {
			a.volumes["long"] = v.Name
		}
	}
	require.NotEmpty(c.t, a.volumes["long"], "the API server has added a volume")
	// The agent adds the name of the node, as to every static pod.
	static := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: pod.Namespace, UID: pod.UID, Labels: pod.Labels}, Spec: pod.Spec}
	c.manifests.Write("app.yaml", c.json(static, "Pod"))
	c.awaitRunning(timeout, "app-n1")
	return a
}

// appPod is the pod as a user would write it, bound to the node.
func (c *cluster) appPod() corev1.Pod {
	address := c.URL()[len("https://"):]
	host, port, err := net.SplitHostPort(address)
	require.NoError(c.t, err)
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app-n1", Labels: map[string]string{"app": "app"}},
		Spec: corev1.PodSpec{
			NodeName: "n1", ServiceAccountName: "app", TerminationGracePeriodSeconds: new(int64(2)),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, // nobody says that the node is ready
			Containers: []corev1.Container{{
				Name: "main", Image: controlplane.Images()[controlplane.Kubectl], ImagePullPolicy: corev1.PullNever,
				Command: []string{"/bin/sh", "-c", appScript},
				Env: []corev1.EnvVar{ // there is no kube-proxy, so no address of a service leads to it
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

// json returns an object as a manifest.
func (c *cluster) json(object any, kind string) string {
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

// token returns the token that is in a volume now.
func (a *app) token(volume string) string {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join(a.state, "pods", a.uid, "volumes", "kubernetes.io~projected", a.volumes[volume], "token"))
	require.NoError(a.t, err)
	return string(text)
}

// review asks the API server who somebody with that token is.
func (a *app) review(token string) (authenticationv1.UserInfo, error) {
	review := authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}}
	client := a.TokenClient(token)
	defer client.Close()
	err := client.Do(within(a.t, 10*time.Second), http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, &review)
	return review.Status.UserInfo, err
}

// authenticates waits until the container was told who it is, by the token that it has now, and checks that it is bound to it.
func (a *app) authenticates(volume string) {
	a.t.Helper()
	token := a.token(volume)
	a.awaitLog("app-n1", "main", fmt.Sprintf("%s %x %s", volume, sha256.Sum256([]byte(token)), account))
	info, err := a.review(token)
	require.NoError(a.t, err)
	require.Equal(a.t, account, info.Username)
	require.Equal(a.t, authenticationv1.ExtraValue{"app-n1"}, info.Extra["authentication.kubernetes.io/pod-name"])
	require.Equal(a.t, authenticationv1.ExtraValue{a.uid}, info.Extra["authentication.kubernetes.io/pod-uid"])
}

// awaitOther waits until there is another token in a volume.
func (a *app) awaitOther(volume, old string, limit time.Duration) {
	a.t.Helper()
	exetest.Eventually(a.t, limit, func() error {
		if a.token(volume) == old {
			return fmt.Errorf("the volume %s has the token that it had", volume)
		}
		return nil
	})
}

// refreshes waits until the agent, which has run since then, has had another token issued because the one it had is in the last
// fifth of its time.
func (a *app) refreshes(since time.Time) {
	a.t.Helper()
	if testing.Short() {
		a.t.Log("without -short: wait for the refresh of a token")
		return
	}
	old, long := a.token("short"), a.token("long")
	a.awaitOther("short", old, shortSeconds*time.Second)
	age := time.Since(since)
	a.t.Logf("a token of %d s was replaced after at most %v", shortSeconds, age.Round(time.Second))
	require.Greater(a.t, age, shortSeconds*4/5*time.Second-15*time.Second, "not before its time")
	a.authenticates("short")
	require.Equal(a.t, long, a.token("long"), "the other one has its time before it")
}

// dies removes the pod, and checks that none of its tokens is worth anything after that.
func (a *app) dies() {
	a.t.Helper()
	tokens := []string{a.token("long"), a.token("short")}
	a.manifests.Remove("app.yaml")
	exetest.Eventually(a.t, timeout, func() error {
		pods, err := a.pods()
		if _, there := pods["app-n1"]; there {
			err = fmt.Errorf("the pod is still there")
		}
		return err
	})
	exetest.Eventually(a.t, timeout, func() error {
		left, err := filepath.Glob(filepath.Join(a.state, "pods", a.uid))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left behind: %s", left)
		}
		return err
	})
	a.do(http.MethodDelete, pathPods+"/app-n1?gracePeriodSeconds=0", nil, nil)
	for _, token := range tokens {
		exetest.Eventually(a.t, timeout, func() error { // the API server remembers for 10 s whom it has let in
			_, err := a.review(token)
			if controlplane.StatusCode(err) == http.StatusUnauthorized {
				return nil
			}
			return fmt.Errorf("the token of a deleted pod: %w", err)
		})
	}
}
