// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Limits and default of the lifetime of a token, in seconds.
const (
	minExpiration     = 600
	maxExpiration     = 1 << 32
	defaultExpiration = 3600
)

// createToken answers a TokenRequest for a service account. It returns the request with a token in its status.
func (c *call) createToken() (runtime.Object, error) {
	decoded, err := c.decodeBody(&authenticationv1.TokenRequest{})
	if err != nil {
		return nil, err
	}
	request, ok := decoded.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T was sent, not a TokenRequest", decoded))
	}
	if _, err := c.server.store.getObject(c.objectKey()); err != nil {
		return nil, err
	}
	if request.Spec.ExpirationSeconds == nil {
		seconds := int64(defaultExpiration)
		request.Spec.ExpirationSeconds = &seconds
	}
	if seconds := *request.Spec.ExpirationSeconds; seconds < minExpiration || seconds > maxExpiration {
		return nil, c.invalidError(c.name, "spec.expirationSeconds", "may not specify a duration less than 10 minutes")
	}
	if err := c.checkBoundObject(request.Spec.BoundObjectRef); err != nil {
		return nil, err
	}
	expires := time.Now().Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second).Truncate(time.Second)
	request.Namespace, request.Name = c.namespace, c.name
	request.Status = authenticationv1.TokenRequestStatus{
		Token: c.buildToken(request.Spec, expires), ExpirationTimestamp: metav1.NewTime(expires),
	}
	return request, nil
}

// checkBoundObject returns an error unless the Pod, Secret or Node exists to which the token is bound.
func (c *call) checkBoundObject(ref *authenticationv1.BoundObjectReference) error {
	if ref == nil {
		return nil
	}
	var k *kind
	namespace := ""
	switch ref.Kind {
	case "Pod":
		k, namespace = c.server.kinds.kindOf(&corev1.Pod{}), c.namespace
	case "Secret":
		k, namespace = c.server.kinds.kindOf(&corev1.Secret{}), c.namespace
	case "Node":
		k = c.server.kinds.kindOf(&corev1.Node{})
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to object %s %s", c.name, ref.Kind, ref.Name))
	}
	obj, err := c.server.store.getObject(key{k, namespace, ref.Name})
	if err != nil {
		return err
	}
	if ref.UID != "" && ref.UID != obj.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{Resource: k.resource}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record (%s)", ref.UID, obj.GetUID()))
	}
	return nil
}

// buildToken returns a JSON Web Token with the claims of a real service account token, but without a signature.
func (c *call) buildToken(spec authenticationv1.TokenRequestSpec, expires time.Time) string {
	bound := map[string]any{"namespace": c.namespace, "serviceaccount": map[string]string{"name": c.name}}
	if ref := spec.BoundObjectRef; ref != nil && ref.Kind == "Pod" {
		bound["pod"] = map[string]string{"name": ref.Name, "uid": string(ref.UID)}
	}
	claims, err := json.Marshal(map[string]any{
		"aud": spec.Audiences, "exp": expires.Unix(), "iat": time.Now().Unix(), "iss": "https://apiserver.test",
		"sub": "system:serviceaccount:" + c.namespace + ":" + c.name, "kubernetes.io": bound, "jti": fmt.Sprint(c.index),
	})
	if err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(claims) + "." + encode([]byte("unsigned"))
}
