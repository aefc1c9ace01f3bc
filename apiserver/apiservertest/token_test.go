// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest_test

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// A token has the requested lifetime, and is bound to an existing pod only.
func TestTokenRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		require.NoError(t, server.Put(newPod("web", "n1"), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"}}))
		pod, _ := apiservertest.Get[*corev1.Pod](server, "default", "web")
		c := client(t, server.Config(), "", runtime.ContentTypeJSON)
		ask := func(account, bound, seconds string) (status map[string]any, err error) {
			body := `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["a"],"expirationSeconds":` + seconds +
				`,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"web","uid":"` + bound + `"}}}`
			result := c.Post().Namespace("default").Resource("serviceaccounts").Name(account).SubResource("token").
				SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context())
			if err := result.Error(); err != nil {
				return nil, err
			}
			raw, err := result.Raw()
			require.NoError(t, err)
			return tokenStatus(t, raw), nil
		}
		status, err := ask("app", string(pod.UID), "900")
		require.NoError(t, err)
		assert.NotEmpty(t, status["token"])
		assert.Equal(t, time.Now().Add(15*time.Minute).UTC().Truncate(time.Second).Format(time.RFC3339), status["expirationTimestamp"])
		_, err = ask("app", "other", "900")
		assert.True(t, apierrors.IsConflict(err), "%v", err)
		_, err = ask("app", string(pod.UID), "60")
		assert.True(t, apierrors.IsInvalid(err), "%v", err)
		_, err = ask("nobody", string(pod.UID), "900")
		assert.True(t, apierrors.IsNotFound(err), "%v", err)
	})
}

func tokenStatus(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var answer struct{ Status map[string]any }
	require.NoError(t, json.Unmarshal(raw, &answer))
	return answer.Status
}

// Admit rejects requests, and objects with finalizers stay until these are removed.
func TestAdmissionAndFinalizers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{Admit: func(verb string, _, obj apiservertest.Object) error {
			if verb == "create" && obj.GetName() == "bad" {
				return errors.New("not this one")
			}
			return nil
		}})
		defer server.Close()
		c := client(t, server.Config(), "", runtime.ContentTypeProtobuf)
		create := func(pod *corev1.Pod) error {
			return c.Post().Namespace("default").Resource("pods").Body(pod).Do(t.Context()).Error()
		}
		err := create(newPod("bad", "n1"))
		assert.True(t, apierrors.IsForbidden(err), "%v", err)
		assert.ErrorContains(t, err, "not this one")

		kept := newPod("kept", "")
		kept.Finalizers = []string{"example.com/wait"}
		require.NoError(t, create(kept))
		require.NoError(t, c.Delete().Namespace("default").Resource("pods").Name("kept").Do(t.Context()).Error())
		pod, exists := apiservertest.Get[*corev1.Pod](server, "default", "kept")
		require.True(t, exists)
		assert.NotNil(t, pod.DeletionTimestamp)
		pod.Finalizers = nil
		require.NoError(t, c.Put().Namespace("default").Resource("pods").Name("kept").Body(pod).Do(t.Context()).Error())
		_, exists = apiservertest.Get[*corev1.Pod](server, "default", "kept")
		assert.False(t, exists)
	})
}
