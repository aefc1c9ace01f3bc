// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package certtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// Authority is a certificate authority. Its certificates have the serial numbers 1, 2 and so on.
type Authority struct {
	cert   *x509.Certificate
	key    crypto.Signer
	number atomic.Int64
}

// NewAuthority returns a certificate authority with a self-signed certificate that is valid for 100 years.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{key: key}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(100, 0, 0),
	}
	der, err := a.signCertificate(template, template, key.Public())
	if err != nil {
		return nil, err
	}
	a.cert, err = x509.ParseCertificate(der)
	return a, err
}

// PEM returns the certificate of the authority as PEM.
func (a *Authority) PEM() []byte { return encodePEM("CERTIFICATE", a.cert.Raw) }

// ClientCertificate returns a client certificate for the user commonName in the group system:nodes, and its key, both as PEM.
func (a *Authority) ClientCertificate(commonName string, notBefore, notAfter time.Time) (certPEM, keyPEM []byte, err error) {
	return a.issueCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: commonName, Organization: []string{"system:nodes"}}, NotBefore: notBefore, NotAfter: notAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *Authority) servingCertificate(name string) (certPEM, keyPEM []byte, err error) {
	return a.issueCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func (a *Authority) issueCertificate(template *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := a.signCertificate(template, a.cert, key.Public())
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	return encodePEM("CERTIFICATE", der), encodePEM("EC PRIVATE KEY", private), err
}

func (a *Authority) signCertificate(template, parent *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	template.SerialNumber = big.NewInt(a.number.Add(1))
	if !template.IsCA {
		template.KeyUsage = x509.KeyUsageDigitalSignature
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %q: %w", template.Subject.CommonName, err)
	}
	return der, nil
}

// isIssuerOf reports whether the authority signed leaf and leaf is a currently valid client certificate.
func (a *Authority) isIssuerOf(leaf *x509.Certificate) bool {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// DecidePending decides each CertificateSigningRequest that has no condition yet. It calls the function that
// Options.Decide or SetDecide has set. Without such a function, it issues all certificates.
func (c *Cluster) DecidePending() {
	c.mu.Lock()
	decide := c.decide
	c.mu.Unlock()
	for _, r := range apiservertest.List[*certificatesv1.CertificateSigningRequest](c.Server) {
		if len(r.Status.Conditions) > 0 {
			continue
		}
		verdict := Issue
		if decide != nil {
			verdict = decide(r)
		}
		c.Decide(r.Name, verdict)
	}
}

// Decide applies verdict to the CertificateSigningRequest called name: it issues the certificate, or sets the condition
// Denied or Failed. It does nothing for [Postpone], and if the request does not exist.
func (c *Cluster) Decide(name string, verdict Verdict) {
	if verdict == Postpone {
		return
	}
	_ = apiservertest.Change(c.Server, "", name, func(r *certificatesv1.CertificateSigningRequest) { // an error means that the request was deleted
		condition := certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: "by certtest",
			LastUpdateTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}
		switch verdict {
		case Deny:
			condition.Type, condition.Reason = certificatesv1.CertificateDenied, "Denied"
		case Fail:
			condition.Type, condition.Reason = certificatesv1.CertificateFailed, "SignerValidationFailure"
		case Issue, Postpone:
			certificate, err := c.signRequest(r)
			if err != nil {
				condition.Type, condition.Reason, condition.Message = certificatesv1.CertificateFailed, "SignerValidationFailure", err.Error()
			}
			r.Status.Certificate = certificate
		}
		r.Status.Conditions = append(r.Status.Conditions, condition)
	})
}

// signRequest returns the PEM certificate for request, signed by the authority of the cluster.
func (c *Cluster) signRequest(request *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil {
		return nil, errors.New("the request is not PEM")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	if err := asked.CheckSignature(); err != nil {
		return nil, err
	}
	usage := x509.ExtKeyUsageClientAuth
	if request.Spec.SignerName == certificatesv1.KubeletServingSignerName {
		usage = x509.ExtKeyUsageServerAuth
	}
	der, err := c.ca.signCertificate(&x509.Certificate{
		Subject: asked.Subject, DNSNames: asked.DNSNames, IPAddresses: asked.IPAddresses, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		NotBefore: time.Now().Add(-c.opts.Backdate), NotAfter: time.Now().Add(c.opts.TTL),
	}, c.ca.cert, asked.PublicKey)
	return encodePEM("CERTIFICATE", der), err
}

func encodePEM(kind string, der []byte) []byte {
	if der == nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
