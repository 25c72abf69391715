# Runs a Django site that answers every path with JSON.
#
#	python3 site.py <host:port to listen on> <folder with middleware.py> <its class, or "">
import sys
from wsgiref.simple_server import make_server

listen, folder, name = sys.argv[1:]
sys.path.insert(0, folder)

from django.conf import settings

settings.configure(ALLOWED_HOSTS=['*'], ROOT_URLCONF=__name__, SECRET_KEY='of a test', MIDDLEWARE=['middleware.' + name] if name else [])

from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import re_path
from django.views.decorators.csrf import csrf_exempt

urlpatterns = [re_path('', csrf_exempt(lambda request: JsonResponse({'ok': True})))]
host, port = listen.rsplit(':', 1)
make_server(host, int(port), get_wsgi_application()).serve_forever()
