package kafkaq

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
)

// certificate writes a key with its certificate, signed by itself, as Kafka reads it, and returns who is to be trusted.
func certificate(t *testing.T) (file string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	self := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, self, self, &key.PublicKey, key)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	file = filepath.Join(t.TempDir(), "broker.pem")
	require.NoError(t, os.WriteFile(file, append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), cert...), 0o600))
	roots = x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(cert))
	return file, roots
}

// A broker that wants TLS and a login, with each mechanism; a wrong password is no refusal of an event.
func TestTLSAndLogins(t *testing.T) {
	t.Parallel()
	file, roots := certificate(t)
	port, err := labserver.ReservePorts(3) // the broker's, its controller's, the secured listener's
	require.NoError(t, err)
	secured := fmt.Sprintf("127.0.0.1:%d", port+2)
	plain := `org.apache.kafka.common.security.plain.PlainLoginModule required user_anna="plain-secret";`
	scramModule := "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	var args []string
	for _, setting := range []string{
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d,SECURED://%s", port, port+1, secured),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d,SECURED://%s", port, secured),
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL",
		"listener.name.secured.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.secured.plain.sasl.jaas.config=" + plain,
		"listener.name.secured.scram-sha-256.sasl.jaas.config=" + scramModule,
		"listener.name.secured.scram-sha-512.sasl.jaas.config=" + scramModule,
		"listener.name.secured.ssl.keystore.type=PEM", "listener.name.secured.ssl.keystore.location=" + file,
	} {
		args = append(args, "--override", setting)
	}
	broker := labserver.Private(t, labserver.KindKafka, labserver.Options{Port: port, Args: args})
	inside := newBench(t, broker.URL(""), 2)
	for _, mechanism := range []sarama.ScramMechanismType{sarama.SCRAM_MECHANISM_SHA_256, sarama.SCRAM_MECHANISM_SHA_512} {
		_, err := inside.admin().UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{{
			Name: "anna", Mechanism: mechanism, Iterations: 4096, Salt: []byte("pepper"), Password: []byte("scram-secret"),
		}})
		require.NoError(t, err)
	}
	for i, mechanism := range []string{MechanismPlain, MechanismSHA256, MechanismSHA512} {
		b := &bench{t: t, cfg: inside.cfg, reg: inside.reg}
		b.cfg.Brokers, b.cfg.TLS, b.cfg.roots = []string{secured}, true, roots
		b.cfg.Mechanism, b.cfg.User, b.cfg.Password = mechanism, "anna", "scram-secret"
		if mechanism == MechanismPlain {
			b.cfg.Password = "plain-secret"
		}
		b.cfg.Group = fmt.Sprintf("%s-%d", inside.cfg.Group, i)
		b.client, b.sender = b.open()
		b.eventually(mechanism, func() bool { return b.client.Ping(t.Context()) == nil }) // new credentials take a moment
		b.add(5)
		m := b.join()
		require.Len(t, tasks(b.read(m, 5*(i+1))), 5)
		m.stop()

		b.cfg.Password = "wrong"
		b.client, b.sender = b.open()
		for _, r := range b.sender.Send(t.Context(), b.events(1)) {
			require.ErrorContains(t, r.Err, "uthentication")
			require.NotContains(t, r.Err.Error(), "wrong")
		}
		require.Error(t, b.client.Probe(t.Context()))
	}
	stranger := &bench{t: t, cfg: inside.cfg, reg: inside.reg}
	stranger.cfg.Brokers, stranger.cfg.TLS = []string{secured}, true
	client, _ := stranger.open()
	require.Error(t, client.Ping(t.Context()), "a certificate that nobody vouches for")
}
